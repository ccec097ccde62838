#include "tests/support/plans/run_plan.h"

#include "fusion/plan/split_epilogues.h"

#include <cstring>

#include "graph/base/status.h"
#include "runtime/host/host_numbers.h"

namespace retrograd {
namespace {

template <typename T>
void Put(char* at, T v) {
  std::memcpy(at, &v, sizeof v);
}
template <typename T>
T Get(const char* at) {
  T v;
  std::memcpy(&v, at, sizeof v);
  return v;
}

void PutElement(DType dtype, char* at, double v) {
  switch (dtype) {
    case DType::kBool: Put<uint8_t>(at, v != 0); break;
    case DType::kInt8: Put(at, static_cast<int8_t>(v)); break;
    case DType::kUInt8: Put(at, static_cast<uint8_t>(v)); break;
    case DType::kInt32: Put(at, static_cast<int32_t>(v)); break;
    case DType::kInt64: Put(at, static_cast<int64_t>(v)); break;
    case DType::kFp16: Put(at, ToFp16(static_cast<float>(v)).bits); break;
    case DType::kBf16: Put(at, ToBf16(static_cast<float>(v)).bits); break;
    case DType::kFp32: Put(at, static_cast<float>(v)); break;
    case DType::kFp64: Put(at, v); break;
    case DType::kFp8E4M3: Put(at, ToFp8<DType::kFp8E4M3>(static_cast<float>(v)).bits); break;
    case DType::kFp8E5M2: Put(at, ToFp8<DType::kFp8E5M2>(static_cast<float>(v)).bits); break;
    case DType::kFp8E4M3Fnuz:
      Put(at, ToFp8<DType::kFp8E4M3Fnuz>(static_cast<float>(v)).bits);
      break;
    case DType::kFp8E5M2Fnuz:
      Put(at, ToFp8<DType::kFp8E5M2Fnuz>(static_cast<float>(v)).bits);
      break;
  }
}

double GetElement(DType dtype, const char* at) {
  switch (dtype) {
    case DType::kBool: return Get<uint8_t>(at);
    case DType::kInt8: return Get<int8_t>(at);
    case DType::kUInt8: return Get<uint8_t>(at);
    case DType::kInt32: return Get<int32_t>(at);
    case DType::kInt64: return static_cast<double>(Get<int64_t>(at));
    case DType::kFp16: return ToFloat(HostFp16{Get<uint16_t>(at)});
    case DType::kBf16: return ToFloat(HostBf16{Get<uint16_t>(at)});
    case DType::kFp32: return Get<float>(at);
    case DType::kFp64: return Get<double>(at);
    case DType::kFp8E4M3: return ToFloat(HostF8E4M3{Get<uint8_t>(at)});
    case DType::kFp8E5M2: return ToFloat(HostF8E5M2{Get<uint8_t>(at)});
    case DType::kFp8E4M3Fnuz: return ToFloat(HostF8E4M3Fnuz{Get<uint8_t>(at)});
    case DType::kFp8E5M2Fnuz: return ToFloat(HostF8E5M2Fnuz{Get<uint8_t>(at)});
  }
  return 0;
}

std::vector<int64_t> StridesOr(const std::vector<int64_t>& strides, const Shape& shape) {
  return strides.empty() ? DenseStrides(shape) : strides;
}

int64_t SpanBytes(const TensorType& type, const std::vector<int64_t>& strides) {
  if (type.elements() == 0) return 16;
  int64_t span = 1;
  for (size_t i = 0; i < strides.size(); ++i) span += (type.shape[i] - 1) * strides[i];
  return std::max<int64_t>(span * SizeBytes(type.dtype), 16);
}

template <typename Fn>  // fn(dense position, strided element)
void ForEachElement(const Shape& shape, const std::vector<int64_t>& strides, Fn fn) {
  std::vector<int64_t> at(shape.size(), 0);
  const int64_t n = Elements(shape);
  for (int64_t i = 0, element = 0; i < n; ++i) {
    fn(i, element);
    for (size_t d = shape.size(); d-- > 0;) {
      element += strides[d];
      if (++at[d] < shape[d]) break;
      element -= at[d] * strides[d];
      at[d] = 0;
    }
  }
}

}  // namespace

std::vector<char> Pack(const TensorType& type, const std::vector<int64_t>& given,
                       const Values& values) {
  const std::vector<int64_t> strides = StridesOr(given, type.shape);
  std::vector<char> bytes(SpanBytes(type, strides), 0);
  const int64_t size = SizeBytes(type.dtype);
  ForEachElement(type.shape, strides, [&](int64_t i, int64_t element) {
    PutElement(type.dtype, bytes.data() + element * size, values[i]);
  });
  return bytes;
}

Values Unpack(const TensorType& type, const std::vector<int64_t>& given,
              const std::vector<char>& bytes) {
  const std::vector<int64_t> strides = StridesOr(given, type.shape);
  Values values(type.elements());
  const int64_t size = SizeBytes(type.dtype);
  ForEachElement(type.shape, strides, [&](int64_t i, int64_t element) {
    values[i] = GetElement(type.dtype, bytes.data() + element * size);
  });
  return values;
}

namespace {

struct Prepared {
  Planned planned;
  std::unique_ptr<CompiledPlan> compiled;
  std::unique_ptr<Program> program;
};

absl::StatusOr<Prepared> Prepare(const BackwardGraph& graph, const RunSetup& setup,
                                 Device& device) {
  CompileOptions options = setup.compile;
  options.dialect = device.dialect();
  options.epilogue_kernels |= device.multiplies_with_epilogues();
  Prepared made;
  RG_ASSIGN_OR_RETURN(DeviceSpec spec, LoadDeviceSpec(setup.device));
  if (setup.spec) spec = *setup.spec;
  RG_ASSIGN_OR_RETURN(made.planned, PlanFusion(graph, spec, setup.plan));
  RG_RETURN_IF_ERROR(made.planned.graph.Verify());
  RG_RETURN_IF_ERROR(made.planned.plan.Verify(made.planned.graph));
  RG_ASSIGN_OR_RETURN(
      CompiledPlan compiled,
      Compile(made.planned.graph,
              options.epilogue_kernels ? made.planned.plan : SplitEpilogues(made.planned.plan),
              options));
  made.compiled = std::make_unique<CompiledPlan>(std::move(compiled));
  ProgramOptions program = setup.program;
  program.caller_workspace |= setup.in_phases;
  RG_ASSIGN_OR_RETURN(made.program, Program::Load(*made.compiled, &device, program));
  return made;
}

// The inputs' bytes, in the order of InputNodes.
std::vector<std::vector<char>> PackInputs(const BackwardGraph& graph,
                                          const std::vector<Values>& inputs) {
  std::vector<std::vector<char>> packed;
  const std::vector<NodeId> nodes = InputNodes(graph);
  for (size_t i = 0; i < nodes.size(); ++i) {
    packed.push_back(Pack(graph.type(nodes[i]), graph.node(nodes[i]).input->strides, inputs[i]));
  }
  return packed;
}

// Bytes of no value for each output; none where the host expects none.
std::vector<std::vector<char>> FilledOutputs(const BackwardGraph& graph) {
  std::vector<std::vector<char>> filled;
  for (const GraphOutput& o : graph.outputs()) {
    filled.emplace_back();
    if (!o.value) continue;
    const TensorType& type = graph.type(*o.value);
    filled.back().assign(SpanBytes(type, StridesOr(o.strides, type.shape)), '\x7f');
  }
  return filled;
}

std::vector<Values> UnpackOutputs(const BackwardGraph& graph,
                                  const std::vector<std::vector<char>>& bytes) {
  std::vector<Values> outputs;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const GraphOutput& o = graph.outputs()[i];
    outputs.push_back(o.value ? Unpack(graph.type(*o.value), o.strides, bytes[i]) : Values{});
  }
  return outputs;
}

// Device memory that holds these bytes; freed with it.
class OnDevice {
 public:
  explicit OnDevice(Device& device) : device_(device) {}
  ~OnDevice() {
    for (void* p : all_) device_.Free(p);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  absl::StatusOr<void*> Take(const std::vector<char>& bytes) {
    if (bytes.empty()) return nullptr;
    const auto size = static_cast<int64_t>(bytes.size());
    RG_ASSIGN_OR_RETURN(void* const p, device_.Allocate(size));
    all_.push_back(p);
    RG_RETURN_IF_ERROR(device_.CopyIn(p, bytes.data(), size));
    return p;
  }

 private:
  Device& device_;
  std::vector<void*> all_;
};

}  // namespace

namespace {

struct FreeAligned {
  void operator()(char* bytes) const { std::free(bytes); }
};
using Room = std::unique_ptr<char, FreeAligned>;

Room MakeRoom(int64_t bytes) {
  const int64_t whole = (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
  return Room(static_cast<char*>(std::aligned_alloc(kArenaAlignment, whole)));
}

// A run whose memory comes and goes with the phases. out: filled where a phase writes it first.
absl::Status RunInPhases(Program& program, std::vector<std::vector<char>> in,
                         std::vector<std::vector<char>>& out) {
  std::vector<const void*> inputs;
  for (const std::vector<char>& bytes : in) inputs.push_back(bytes.data());
  std::vector<void*> outputs(out.size(), nullptr), blocks(program.blocks().size(), nullptr);
  std::vector<Room> rooms(blocks.size());
  const auto enter = [&](uint32_t phase) {
    for (size_t i = 0; phase > 0 && i < in.size(); ++i) {
      if (program.input_phases()[i] + 1 != phase) continue;
      std::fill(in[i].begin(), in[i].end(), '\xff');
      std::vector<char>().swap(in[i]);
    }
    for (size_t b = 0; b < blocks.size(); ++b) {
      const WorkspaceBlock& block = program.blocks()[b];
      if (phase > 0 && block.last + 1 == phase) rooms[b].reset();
      if (block.first != phase) continue;
      rooms[b] = MakeRoom(block.bytes);
      std::memset(rooms[b].get(), 0xff, static_cast<size_t>(block.bytes));
      blocks[b] = rooms[b].get();
    }
    for (size_t o = 0; o < out.size(); ++o) {
      if (program.output_phases()[o] == phase) outputs[o] = out[o].data();
    }
  };
  enter(0);
  const auto before = [&](uint32_t phase) {
    enter(phase);
    return absl::OkStatus();
  };
  return program.Run(inputs, absl::MakeSpan(outputs), std::nullopt, {blocks, before});
}

}  // namespace

absl::StatusOr<RunResult> RunOnHost(const BackwardGraph& graph, const std::vector<Values>& inputs,
                                    const RunSetup& setup) {
  const std::unique_ptr<Device> host = MakeHostDevice(setup.host);
  RG_ASSIGN_OR_RETURN(Prepared made, Prepare(graph, setup, *host));
  // Blocks of their own size: a sanitizer sees what reaches beyond.
  const std::vector<std::vector<char>> in = PackInputs(graph, inputs);
  std::vector<std::vector<char>> out = FilledOutputs(graph);
  if (setup.in_phases) {
    RG_RETURN_IF_ERROR(RunInPhases(*made.program, in, out));
    return RunResult{std::move(made.planned), UnpackOutputs(graph, out), made.program->phases()};
  }
  std::vector<const void*> in_pointers;
  std::vector<void*> out_pointers;
  for (const std::vector<char>& bytes : in) in_pointers.push_back(bytes.data());
  for (std::vector<char>& bytes : out) out_pointers.push_back(bytes.data());
  RG_RETURN_IF_ERROR(made.program->Run(in_pointers, out_pointers));
  RG_RETURN_IF_ERROR(host->Synchronize());
  return RunResult{std::move(made.planned), UnpackOutputs(graph, out)};
}

absl::StatusOr<RunResult> RunOnDevice(const BackwardGraph& graph, const std::vector<Values>& inputs,
                                      const RunSetup& setup, Device& device) {
  RG_ASSIGN_OR_RETURN(Prepared made, Prepare(graph, setup, device));
  OnDevice memory(device);
  std::vector<const void*> in;
  std::vector<void*> out;
  for (const std::vector<char>& bytes : PackInputs(graph, inputs)) {
    RG_ASSIGN_OR_RETURN(in.emplace_back(), memory.Take(bytes));
  }
  std::vector<std::vector<char>> outputs = FilledOutputs(graph);
  for (const std::vector<char>& bytes : outputs) {
    RG_ASSIGN_OR_RETURN(out.emplace_back(), memory.Take(bytes));
  }
  RG_RETURN_IF_ERROR(made.program->Run(in, out));
  RG_RETURN_IF_ERROR(device.Synchronize());
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (outputs[o].empty()) continue;
    RG_RETURN_IF_ERROR(
        device.CopyOut(outputs[o].data(), out[o], static_cast<int64_t>(outputs[o].size())));
  }
  return RunResult{std::move(made.planned), UnpackOutputs(graph, outputs)};
}

}  // namespace retrograd
