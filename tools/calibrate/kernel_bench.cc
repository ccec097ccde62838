#include "tools/calibrate/kernel_bench.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "codegen/emit.h"
#include "codegen/translation_unit.h"
#include "fusion/device/device_spec.h"
#include "fusion/ops/convolution/packed_layout.h"
#include "fusion/planner/planner.h"
#include "graph/base/status.h"
#include "graph/text/text.h"
#include "runtime/executable/executable.h"
#include "tools/execute/step_times.h"

namespace retrograd {
namespace {

constexpr int64_t kPatternBytes = int64_t{8} << 20;
constexpr int64_t kAlignment = 256;              // of what a device allocates
constexpr double kRowUs = 200, kMostLinks = 20;  // of works in a row

// Numbers near 1 of the dtype; integers are 0.
std::string Numbers(DType dtype, int64_t bytes) {
  std::string numbers(static_cast<size_t>(bytes), '\0');
  if (!IsFloat(dtype)) return numbers;
  for (int64_t i = 0; i + 4 <= bytes; i += 4) {
    const auto draw = static_cast<uint32_t>(i * 2654435761u);
    uint32_t bits = 0x3f800000 | (draw >> 9);  // [1, 2)
    if (dtype == DType::kBf16) bits = (bits & 0xffff0000) | bits >> 16;
    if (dtype == DType::kFp16) bits = 0x3c003c00 | (draw & 0x03ff03ff);
    if (dtype == DType::kFp64) bits = 0x3ff00000;
    std::memcpy(&numbers[static_cast<size_t>(i)], &bits, 4);
  }
  return numbers;
}

absl::StatusOr<void*> FilledBuffer(Device* device, Buffers* buffers, DType dtype, int64_t bytes) {
  RG_ASSIGN_OR_RETURN(void* const data, buffers->Allocate(bytes));
  const std::string pattern = Numbers(dtype, std::min(bytes, kPatternBytes));
  for (int64_t at = 0; at < bytes; at += kPatternBytes) {
    RG_RETURN_IF_ERROR(device->CopyIn(static_cast<char*>(data) + at, pattern.data(),
                                      std::min(kPatternBytes, bytes - at)));
  }
  return data;
}

Launch LaunchOf(const Kernel& kernel, const KernelIr& ir, int64_t workspace_bytes) {
  Launch launch{kernel.name, kernel.blocks, kernel.threads, {}, kernel.staged_bytes};
  for (const KernelArg& arg : kernel.args) {
    LaunchArg bound{.slot = static_cast<uint32_t>(ir.buffers.size()),
                    .bytes = workspace_bytes,
                    .alignment = kAlignment,
                    .written = true};
    for (size_t b = 0; b < ir.buffers.size() && arg.kind == KernelArg::kValue; ++b) {
      if (ir.buffers[b].value != arg.value) continue;
      bound = {.slot = static_cast<uint32_t>(b),
               .bytes = ir.buffers[b].elements * SizeBytes(ir.buffers[b].dtype),
               .alignment = ir.buffers[b].alignment,
               .written = ir.buffers[b].written};
    }
    launch.args.push_back(bound);
  }
  return launch;
}

// One or more schedules of a kernel, on the same operands.
class ScheduledKernel : public BenchWork {
 public:
  static absl::StatusOr<std::unique_ptr<ScheduledKernel>> Make(
      Device* device, const KernelIr& ir, absl::Span<const Schedule> schedules) {
    auto work = std::make_unique<ScheduledKernel>(device);
    std::vector<GroupKernels> kernels;
    std::vector<Launch> launches;
    int64_t workspace = 0;
    for (const Schedule& s : schedules) workspace = std::max(workspace, WorkspaceBytes(ir, s));
    for (const Schedule& s : schedules) {
      kernels.push_back(EmitGroup(KernelBody{.ir = ir, .schedule = s}, device->dialect()));
      for (const Kernel& kernel : kernels.back().launches) {
        launches.push_back(LaunchOf(kernel, ir, workspace));
      }
      work->ends_.push_back(launches.size());
    }
    for (const Buffer& b : ir.buffers) {
      RG_ASSIGN_OR_RETURN(
          work->table_.emplace_back(),
          FilledBuffer(device, &work->buffers_, b.dtype, b.elements * SizeBytes(b.dtype)));
    }
    RG_ASSIGN_OR_RETURN(work->table_.emplace_back(), work->buffers_.Allocate(workspace));
    RG_ASSIGN_OR_RETURN(work->loaded_, device->Load(DistinctKernels(kernels), launches));
    RG_RETURN_IF_ERROR(device->Bind(0, *work->loaded_, work->table_));
    RG_RETURN_IF_ERROR(device->Synchronize());
    return work;
  }
  explicit ScheduledKernel(Device* device) : device_(device), buffers_(device) {}

  void Choose(size_t schedule) { chosen_ = schedule; }
  absl::Status Issue(int stream) override {
    for (size_t i = chosen_ == 0 ? 0 : ends_[chosen_ - 1]; i < ends_[chosen_]; ++i) {
      RG_RETURN_IF_ERROR(device_->Launch(stream, *loaded_, i));
    }
    return absl::OkStatus();
  }

 private:
  Device* device_;
  Buffers buffers_;
  std::vector<void*> table_;  // by buffer of the kernel, the workspace last
  std::vector<size_t> ends_;  // by schedule: past its last launch
  size_t chosen_ = 0;
  std::unique_ptr<LoadedKernels> loaded_;
};

// A kernel of the caller's.
class WrittenKernel : public BenchWork {
 public:
  static absl::StatusOr<std::unique_ptr<WrittenKernel>> Make(Device* device, const Kernel& kernel,
                                                             absl::Span<const int64_t> bytes) {
    auto work = std::make_unique<WrittenKernel>(device);
    Launch launch{kernel.name, kernel.blocks, kernel.threads, {}};
    for (size_t i = 0; i < bytes.size(); ++i) {
      launch.args.push_back({.slot = static_cast<uint32_t>(i),
                             .bytes = bytes[i],
                             .alignment = kAlignment,
                             .written = i + 1 == bytes.size()});
      RG_ASSIGN_OR_RETURN(work->table_.emplace_back(),
                          FilledBuffer(device, &work->buffers_, DType::kBf16, bytes[i]));
    }
    RG_ASSIGN_OR_RETURN(work->loaded_, device->Load({kernel}, {launch}));
    RG_RETURN_IF_ERROR(device->Bind(0, *work->loaded_, work->table_));
    RG_RETURN_IF_ERROR(device->Synchronize());
    return work;
  }
  explicit WrittenKernel(Device* device) : device_(device), buffers_(device) {}
  absl::Status Issue(int stream) override { return device_->Launch(stream, *loaded_, 0); }

 private:
  Device* device_;
  Buffers buffers_;
  std::vector<void*> table_;
  std::unique_ptr<LoadedKernels> loaded_;
};

class CallWork : public BenchWork {
 public:
  static absl::StatusOr<std::unique_ptr<CallWork>> Make(Device* device, const Call& call) {
    auto work = std::make_unique<CallWork>(device);
    CallFacts facts;
    for (const CallTensor& t : call.operands) {
      RG_ASSIGN_OR_RETURN(
          work->operands_.emplace_back(),
          FilledBuffer(device, &work->buffers_, t.dtype, SpanOf(t) * SizeBytes(t.dtype)));
      facts.operand_alignment.push_back(kAlignment);
    }
    for (const CallTensor& t : call.results) {
      RG_ASSIGN_OR_RETURN(
          work->results_.emplace_back(),
          FilledBuffer(device, &work->buffers_, t.dtype, SpanOf(t) * SizeBytes(t.dtype)));
      facts.result_alignment.push_back(kAlignment);
    }
    RG_ASSIGN_OR_RETURN(work->call_, device->Load(call, facts));
    RG_ASSIGN_OR_RETURN(work->scratch_, work->buffers_.Allocate(work->call_->scratch_bytes()));
    return work;
  }
  explicit CallWork(Device* device) : buffers_(device) {}
  absl::Status Issue(int stream) override {
    return call_->Run(stream, {operands_, absl::MakeSpan(results_)}, scratch_);
  }

 private:
  Buffers buffers_;
  std::vector<const void*> operands_;
  std::vector<void*> results_;
  std::unique_ptr<LoadedCall> call_;
  void* scratch_ = nullptr;
};

// Row-major, at the beginning of a value of its own.
CallTensor Dense(Shape shape, DType dtype) {
  std::vector<int64_t> strides = DenseStrides(shape);
  return {.shape = std::move(shape), .strides = std::move(strides), .dtype = dtype};
}

}  // namespace

absl::StatusOr<std::unique_ptr<BenchWork>> KernelBench::Kernel(const KernelIr& ir,
                                                               const Schedule& schedule) {
  return ScheduledKernel::Make(device_, ir, {&schedule, 1});
}

absl::StatusOr<std::unique_ptr<BenchWork>> KernelBench::MatMul(int64_t m, int64_t n, int64_t k,
                                                               DType dtype) {
  return CallWork::Make(device_, {.op = Op::matmul,
                                  .operands = {Dense({m, k}, dtype), Dense({k, n}, dtype)},
                                  .results = {Dense({m, n}, dtype)}});
}

absl::StatusOr<std::unique_ptr<BenchWork>> KernelBench::Convolution(int64_t batch, int64_t channels,
                                                                    int64_t height, int64_t width,
                                                                    DType dtype) {
  const auto channels_last = [&](const Shape& shape) {
    return CallTensor{.shape = shape, .strides = ChannelsLastStrides(shape), .dtype = dtype};
  };
  const Shape image = {batch, channels, height, width}, filter = {channels, channels, 3, 3};
  Call call{.op = Op::convolution_input_gradient,
            .operands = {channels_last(image), channels_last(filter)},
            .results = {channels_last(image)}};
  const std::vector<int64_t> one = {1, 1};
  call.attributes = {{"stride", one}, {"padding", one}, {"dilation", one}, {"groups", int64_t{1}}};
  call.attributes.Set("input_shape", image);
  return CallWork::Make(device_, call);
}

absl::StatusOr<std::unique_ptr<BenchWork>> KernelBench::Written(const retrograd::Kernel& kernel,
                                                                absl::Span<const int64_t> bytes) {
  return WrittenKernel::Make(device_, kernel, bytes);
}

absl::StatusOr<std::vector<double>> KernelBench::Schedules(const KernelIr& ir,
                                                           absl::Span<const Schedule> schedules) {
  RG_ASSIGN_OR_RETURN(const std::unique_ptr<ScheduledKernel> work,
                      ScheduledKernel::Make(device_, ir, schedules));
  std::vector<double> times;
  for (size_t i = 0; i < schedules.size(); ++i) {
    work->Choose(i);
    RG_ASSIGN_OR_RETURN(times.emplace_back(), InARow(work.get()));
  }
  return times;
}

absl::StatusOr<double> KernelBench::Alone(BenchWork* work) {
  RG_ASSIGN_OR_RETURN(const TimeSamples samples,
                      device_->Time([&] { return work->Issue(0); }, repeat_, /*cold=*/false));
  return Median(samples);
}

absl::StatusOr<double> KernelBench::InARow(BenchWork* work) {
  RG_ASSIGN_OR_RETURN(const double alone, Alone(work));
  const int links = static_cast<int>(std::clamp(kRowUs / std::max(alone, 1.0), 1.0, kMostLinks));
  return links == 1 ? alone : Chain(work, links);
}

absl::StatusOr<double> KernelBench::Recorded(absl::FunctionRef<absl::Status()> work, bool record) {
  if (!record || !device_->records()) {
    RG_ASSIGN_OR_RETURN(const TimeSamples samples, device_->Time(work, repeat_, /*cold=*/false));
    return Median(samples);
  }
  RG_RETURN_IF_ERROR(device_->BeginRecording());
  const absl::Status issued = work();
  absl::StatusOr<std::unique_ptr<Recording>> recording = device_->EndRecording(nullptr);
  RG_RETURN_IF_ERROR(issued);
  RG_RETURN_IF_ERROR(recording.status());
  RG_ASSIGN_OR_RETURN(const TimeSamples samples,
                      device_->Time([&] { return device_->Replay(**recording); }, repeat_,
                                    /*cold=*/false));
  return Median(samples);
}

absl::StatusOr<double> KernelBench::Chain(BenchWork* work, int links, bool record) {
  const auto chain = [&]() -> absl::Status {
    for (int i = 0; i < links; ++i) RG_RETURN_IF_ERROR(work->Issue(0));
    return absl::OkStatus();
  };
  RG_ASSIGN_OR_RETURN(const double all, Recorded(chain, record));
  return all / links;
}

absl::StatusOr<KernelBench::Pair> KernelBench::SideBySide(BenchWork* a, int links_a, BenchWork* b,
                                                          int links_b) {
  RG_RETURN_IF_ERROR(device_->Reserve(2, 2));
  const auto issue = [&](int side) -> absl::Status {
    if (side != 0) {
      RG_RETURN_IF_ERROR(device_->Record(0, 0));
      RG_RETURN_IF_ERROR(device_->Wait(side, 0));
    }
    // In turn, as a schedule issues them.
    for (int i = 0; i < std::max(links_a, links_b); ++i) {
      if (i < links_a) RG_RETURN_IF_ERROR(a->Issue(0));
      if (i < links_b) RG_RETURN_IF_ERROR(b->Issue(side));
    }
    if (side != 0) {
      RG_RETURN_IF_ERROR(device_->Record(side, 1));
      RG_RETURN_IF_ERROR(device_->Wait(0, 1));
    }
    return absl::OkStatus();
  };
  Pair pair;
  RG_ASSIGN_OR_RETURN(pair.together_us, Recorded([&] { return issue(1); }, true));
  RG_ASSIGN_OR_RETURN(pair.one_after_other_us, Recorded([&] { return issue(0); }, true));
  return pair;
}

absl::StatusOr<KernelBody> PlannedKernel(absl::string_view graph_text, const DeviceSpec& spec) {
  RG_ASSIGN_OR_RETURN(const BackwardGraph graph, ParseGraph(graph_text));
  RG_ASSIGN_OR_RETURN(const Planned planned, PlanFusion(graph, spec, {.decisions = false}));
  if (planned.plan.groups.size() != 1 || KernelOf(planned.plan.groups[0]) == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "a benchmark is planned as ", planned.plan.groups.size(), " groups and not as one kernel"));
  }
  return *KernelOf(planned.plan.groups[0]);
}

absl::StatusOr<std::vector<Group>> PlannedGroups(absl::string_view graph_text,
                                                 const DeviceSpec& spec) {
  RG_ASSIGN_OR_RETURN(const BackwardGraph graph, ParseGraph(graph_text));
  RG_ASSIGN_OR_RETURN(Planned planned, PlanFusion(graph, spec, {.decisions = false}));
  return std::move(planned.plan.groups);
}

absl::StatusOr<double> TimeSteps(absl::string_view graph_text, const DeviceSpec& spec, int repeat,
                                 absl::FunctionRef<bool(const Group&)> counts, Device* device) {
  RG_ASSIGN_OR_RETURN(const BackwardGraph graph, ParseGraph(graph_text));
  RG_ASSIGN_OR_RETURN(
      const Executable executable,
      Executable::Make(graph, *device,
                       {.spec = ChosenSpec{.spec = spec}, .plan = {.decisions = false}}));
  Buffers buffers(device);
  RG_ASSIGN_OR_RETURN(const std::vector<const void*> inputs,
                      DrawInputs(graph, 1, device, &buffers));
  RG_ASSIGN_OR_RETURN(const std::vector<void*> outputs, AllocateOutputs(graph, &buffers));
  RG_ASSIGN_OR_RETURN(const std::vector<StepTime> times,
                      executable.program().TimeSteps(inputs, outputs, repeat, /*cold=*/false));
  double us = 0;
  for (const StepTime& time : times) {
    if (counts(executable.compiled().plan.groups[Index(time.group)]))
      us += Median(time.microseconds);
  }
  return us;
}

}  // namespace retrograd
