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

absl::StatusOr<RunResult> RunOnHost(const BackwardGraph& graph, const std::vector<Values>& inputs,
                                    const RunSetup& setup) {
  RunResult result;
  RG_ASSIGN_OR_RETURN(DeviceSpec device, LoadDeviceSpec(setup.device));
  if (setup.spec) device = *setup.spec;
  RG_ASSIGN_OR_RETURN(result.planned, PlanFusion(graph, device, setup.plan));
  RG_RETURN_IF_ERROR(result.planned.graph.Verify());
  RG_RETURN_IF_ERROR(result.planned.plan.Verify(result.planned.graph));
  RG_ASSIGN_OR_RETURN(CompiledPlan compiled,
                      Compile(result.planned.graph,
                              setup.compile.epilogue_kernels ? result.planned.plan
                                                             : SplitEpilogues(result.planned.plan),
                              setup.compile));
  std::unique_ptr<Device> host = MakeHostDevice(setup.host);
  RG_ASSIGN_OR_RETURN(std::unique_ptr<Program> program,
                      Program::Load(compiled, host.get(), setup.program));

  std::vector<std::vector<char>> in, out;
  std::vector<const void*> in_pointers;
  std::vector<void*> out_pointers;
  const std::vector<NodeId> nodes = InputNodes(graph);
  for (size_t i = 0; i < nodes.size(); ++i) {
    in.push_back(Pack(graph.type(nodes[i]), graph.node(nodes[i]).input->strides, inputs[i]));
    in_pointers.push_back(in.back().data());
  }
  for (const GraphOutput& o : graph.outputs()) {
    out.emplace_back();
    if (o.value) {
      const TensorType& type = graph.type(*o.value);
      out.back().assign(SpanBytes(type, StridesOr(o.strides, type.shape)), '\x7f');
    }
    out_pointers.push_back(out.back().data());
  }
  RG_RETURN_IF_ERROR(program->Run(in_pointers, out_pointers));
  RG_RETURN_IF_ERROR(host->Synchronize());
  for (size_t i = 0; i < out.size(); ++i) {
    const GraphOutput& o = graph.outputs()[i];
    result.outputs.push_back(o.value ? Unpack(graph.type(*o.value), o.strides, out[i]) : Values{});
  }
  return result;
}

}  // namespace retrograd
