#include "runtime/ops/convolution/generated_convolution.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "codegen/convolution/emit_depthwise.h"
#include "codegen/convolution/emit_implicit_gemm.h"
#include "fusion/ops/convolution/depthwise_tiles.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

constexpr int64_t kSharedBytes = 99 << 10;  // that a block may have on NVIDIA GPUs from sm_80 on

std::string NameOf(absl::string_view schedule) {
  return absl::StrCat("kernels of ours, ", schedule);
}

// The schedules' kernels, of which each call launches its own.
class GeneratedCall : public LoadedCall {
 public:
  // early: by launch of the schedule, whether its kernel waits for what is in front of it; `first`
  // is the number of the first one.
  GeneratedCall(Device& device, std::shared_ptr<LoadedKernels> kernels, size_t first,
                std::vector<bool> early, int64_t scratch_bytes, std::string schedule)
      : LoadedCall(scratch_bytes),
        device_(device),
        kernels_(std::move(kernels)),
        first_(first),
        early_(std::move(early)),
        schedule_(std::move(schedule)) {}

  absl::Status Run(int stream, const CallPointers& pointers, void* scratch) override {
    void* table[kConvolutionSlots];
    table[kConvolutionFirst] = const_cast<void*>(pointers.operands[0]);
    table[kConvolutionSecond] = const_cast<void*>(pointers.operands[1]);
    table[kConvolutionResult] = pointers.results[0];
    table[kPartials] = scratch;
    RG_RETURN_IF_ERROR(device_.Bind(stream, *kernels_, table));
    for (size_t i = 0; i < early_.size(); ++i) {
      const bool early = early_[i] && may_start_early(i);
      RG_RETURN_IF_ERROR(early ? device_.LaunchEarly(stream, *kernels_, first_ + i)
                               : device_.Launch(stream, *kernels_, first_ + i));
    }
    return absl::OkStatus();
  }
  std::string Describe() const override { return NameOf(schedule_); }

 private:
  Device& device_;
  const std::shared_ptr<LoadedKernels> kernels_;
  const size_t first_;
  const std::vector<bool> early_;
  const std::string schedule_;
};

LaunchArg ArgOf(ConvolutionSlot slot, bool written, const Call& call,
                const ConvolutionKernels& kernels) {
  LaunchArg arg{
      .slot = static_cast<uint32_t>(slot), .alignment = kConvolutionAlignment, .written = written};
  if (slot == kPartials) {
    arg.bytes = kernels.partial_elements * SizeBytes(kernels.partial_dtype);
    arg.contents = written ? Contents::kFresh : Contents::kWritten;
    return arg;
  }
  const CallTensor& t = slot == kConvolutionResult ? call.results[0] : call.operands[slot];
  arg.bytes = SpanOf(t) * SizeBytes(t.dtype);
  return arg;
}

Launch LaunchOf(const ConvolutionKernels::Launch& made, const Call& call,
                const ConvolutionKernels& kernels) {
  Launch launch = BareLaunchOf(made.kernel);
  for (size_t i = 0; i < made.args.size(); ++i) {
    const bool written = i + 1 == made.args.size();  // the result stands last
    launch.args.push_back(ArgOf(made.args[i], written, call, kernels));
  }
  if (made.boxes) {
    const bool input = call.op == Op::convolution_input_gradient;
    launch.maps = BoxMapsOf(*made.boxes, call.operands[0].dtype,
                            input ? kConvolutionFirst : kConvolutionSecond,
                            input ? kConvolutionSecond : kConvolutionFirst);
    launch.cluster = 0;
  }
  return launch;
}

absl::StatusOr<std::vector<ConvolutionKernels>> GenerateFor(Device& device, const Call& call,
                                                            const CallFacts& facts, size_t most) {
  RG_RETURN_IF_ERROR(AlignmentRefusal(facts));
  return GenerateConvolution(ConvolutionOf(call), device.dialect(),
                             ConvolutionLimits(device, facts), most);
}

class GeneratedConvolutionLoader : public CallLoader {
 public:
  GeneratedConvolutionLoader(Device& device, std::unique_ptr<CallLoader> otherwise)
      : device_(device), otherwise_(std::move(otherwise)) {}

  std::vector<Kernel> KernelsOf(const Call& call, const CallFacts& facts) override {
    return GeneratedConvolutionKernels(device_, call, facts, 1);
  }

  absl::StatusOr<std::unique_ptr<LoadedCall>> Load(const Call& call,
                                                   const CallFacts& facts) override {
    auto loaded = LoadGeneratedConvolution(device_, call, facts, 1);
    if (loaded.ok()) return std::move(loaded->front());
    if (!absl::IsUnimplemented(loaded.status())) return loaded.status();
    return otherwise_->Load(call, facts);
  }

 private:
  Device& device_;
  const std::unique_ptr<CallLoader> otherwise_;
};

}  // namespace

absl::Status AlignmentRefusal(const CallFacts& facts) {
  const auto aligned = [](const std::vector<int64_t>& known) {
    return std::all_of(known.begin(), known.end(),
                       [](int64_t bytes) { return bytes % kConvolutionAlignment == 0; });
  };
  if (aligned(facts.operand_alignment) && aligned(facts.result_alignment)) return absl::OkStatus();
  return absl::UnimplementedError("our convolution kernels take addresses of 16 bytes' multiples");
}

Launch BareLaunchOf(const Kernel& kernel) {
  return {.kernel = kernel.name,
          .blocks = kernel.blocks,
          .threads = kernel.threads,
          .staged_bytes = kernel.staged_bytes,
          .direct = kernel.direct,
          .starts_early = kernel.starts_early};
}

std::vector<OperandMap> BoxMapsOf(const BoxOperands& boxes, DType dtype, uint32_t images_slot,
                                  uint32_t matrix_slot) {
  std::vector<OperandMap> maps;
  for (const ImageWalk& walk : boxes.walks) {
    maps.push_back({.slot = images_slot, .dtype = dtype, .images = walk});
  }
  const BoxMatrix& m = boxes.matrix;
  maps.push_back({.slot = matrix_slot,
                  .dtype = dtype,
                  .offset = m.offset,
                  .inner = m.columns,
                  .outer = m.lines,
                  .pitch = m.pitch});
  return maps;
}

ImplicitGemmLimits ConvolutionLimits(const Device& device, const CallFacts& facts) {
  ImplicitGemmLimits limits = {.sms = device.Describe().sms,
                               .boxes = facts.image_boxes && device.loads_boxes()};
  if (device.dialect() != Dialect::kHip) limits.shared_bytes = kSharedBytes;
  return limits;
}

absl::StatusOr<std::vector<ConvolutionKernels>> GenerateConvolution(
    const ConvolutionCall& call, Dialect dialect, const ImplicitGemmLimits& limits, size_t most) {
  std::vector<ConvolutionKernels> made;
  if (DepthwiseRefusal(call).ok()) {
    if (call.op == Op::convolution_input_gradient) {
      for (const DepthwiseInputTile& tile : DepthwiseInputTiles(call, limits.sms, most)) {
        made.push_back(EmitDepthwiseInputGradient(call, tile, dialect));
      }
    } else {
      for (const DepthwiseWeightTile& tile : DepthwiseWeightTiles(call, limits.sms, most)) {
        made.push_back(EmitDepthwiseWeightGradient(call, tile, dialect));
      }
    }
    return made;
  }
  RG_RETURN_IF_ERROR(ImplicitGemmRefusal(call));
  for (const ImplicitGemmTile& tile : ImplicitGemmTiles(call, limits, most)) {
    made.push_back(EmitImplicitGemm(call, tile, dialect));
  }
  return made;
}

std::vector<Kernel> DistinctKernels(const std::vector<ConvolutionKernels>& schedules) {
  std::vector<Kernel> kernels;
  for (const ConvolutionKernels& schedule : schedules) {
    for (const ConvolutionKernels::Launch& launch : schedule.launches) {
      const auto same = [&](const Kernel& k) { return k.name == launch.kernel.name; };
      if (std::none_of(kernels.begin(), kernels.end(), same)) kernels.push_back(launch.kernel);
    }
  }
  return kernels;
}

std::vector<Kernel> GeneratedConvolutionKernels(Device& device, const Call& call,
                                                const CallFacts& facts, size_t most) {
  const auto made = GenerateFor(device, call, facts, most);
  return made.ok() ? DistinctKernels(*made) : std::vector<Kernel>{};
}

absl::StatusOr<std::vector<std::unique_ptr<LoadedCall>>> LoadGeneratedConvolution(
    Device& device, const Call& call, const CallFacts& facts, size_t most) {
  RG_ASSIGN_OR_RETURN(const std::vector<ConvolutionKernels> made,
                      GenerateFor(device, call, facts, most));
  return LoadConvolutionKernels(device, call, made);
}

absl::StatusOr<std::unique_ptr<LoadedCall>> LoadGeneratedConvolutionLike(Device& device,
                                                                         const Call& call,
                                                                         const CallFacts& facts,
                                                                         absl::string_view name) {
  RG_ASSIGN_OR_RETURN(std::vector<ConvolutionKernels> made,
                      GenerateFor(device, call, facts, kMostSchedules));
  const auto same = std::find_if(made.begin(), made.end(), [&](const ConvolutionKernels& kernels) {
    return NameOf(kernels.schedule) == name;
  });
  const size_t which = same == made.end() ? 0 : static_cast<size_t>(same - made.begin());
  RG_ASSIGN_OR_RETURN(std::vector<std::unique_ptr<LoadedCall>> loaded,
                      LoadConvolutionKernels(device, call, {std::move(made[which])}));
  return std::move(loaded[0]);
}

absl::StatusOr<std::vector<std::unique_ptr<LoadedCall>>> LoadConvolutionKernels(
    Device& device, const Call& call, const std::vector<ConvolutionKernels>& made) {
  std::vector<Launch> launches;
  for (const ConvolutionKernels& schedule : made) {
    for (const ConvolutionKernels::Launch& launch : schedule.launches) {
      launches.push_back(LaunchOf(launch, call, schedule));
    }
  }
  RG_ASSIGN_OR_RETURN(std::shared_ptr<LoadedKernels> loaded,
                      device.Load(DistinctKernels(made), launches));
  std::vector<std::unique_ptr<LoadedCall>> calls;
  size_t first = 0;
  for (const ConvolutionKernels& schedule : made) {
    std::vector<bool> early;
    for (const ConvolutionKernels::Launch& launch : schedule.launches) {
      early.push_back(launch.kernel.starts_early);
    }
    calls.push_back(std::make_unique<GeneratedCall>(
        device, loaded, first, std::move(early),
        schedule.partial_elements * SizeBytes(schedule.partial_dtype), schedule.schedule));
    first += schedule.launches.size();
  }
  return calls;
}

std::unique_ptr<CallLoader> MakeGeneratedConvolutionLoader(Device& device,
                                                           std::unique_ptr<CallLoader> otherwise) {
  return std::make_unique<GeneratedConvolutionLoader>(device, std::move(otherwise));
}

}  // namespace retrograd
