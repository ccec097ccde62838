#include "runtime/ops/convolution/cuda_shared_products.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "fusion/plan/call_key.h"
#include "graph/base/status.h"
#include "runtime/device/calls_in_turn.h"
#include "runtime/gpu/kernels_digest.h"
#include "runtime/ops/convolution/generated_convolution.h"
#include "runtime/ops/convolution/shared_products_call.h"
#include "runtime/trials/loaded_calls.h"

namespace retrograd {
namespace {

constexpr absl::string_view kInTurn = "one after the other", kTogether = "one launch";

CallMemory MemoryOf(absl::Span<const ExpectedCall> calls) {
  CallMemory memory;
  for (const ExpectedCall& expected : calls) AddMemoryOf(*expected.call, memory);
  return memory;
}

std::string KeyOf(absl::Span<const ExpectedCall> calls) {
  return absl::StrJoin(calls, "; ", [](std::string* out, const ExpectedCall& expected) {
    out->append(CallKey(*expected.call));
  });
}

// The one that was chosen, with its time.
class ChosenCall : public LoadedCall {
 public:
  ChosenCall(std::unique_ptr<LoadedCall> call, std::string times)
      : LoadedCall(call->scratch_bytes()), call_(std::move(call)), times_(std::move(times)) {}

  void ForbidEarlyLaunches() override { call_->ForbidEarlyLaunches(); }
  absl::Status Run(int stream, const CallPointers& pointers, void* scratch) override {
    return call_->Run(stream, pointers, scratch);
  }
  std::string Describe() const override { return absl::StrCat(call_->Describe(), times_); }

 private:
  const std::unique_ptr<LoadedCall> call_;
  const std::string times_;
};

class CudaSharedProductsLoader : public SharedCallLoader {
 public:
  explicit CudaSharedProductsLoader(GpuDevice& device) : device_(device) {}

  std::vector<Kernel> KernelsOf(absl::Span<const ExpectedCall> calls) override {
    return SharedProductKernels(calls, device_.dialect(), LimitsOf(calls));
  }

  absl::StatusOr<std::unique_ptr<LoadedCall>> Load(absl::Span<const ExpectedCall> calls) override {
    RG_ASSIGN_OR_RETURN(std::unique_ptr<LoadedCall> together,
                        LoadSharedProducts(device_, calls, LimitsOf(calls)));
    absl::StatusOr<std::unique_ptr<LoadedCall>> apart = LoadInTurn(device_, calls);
    if (absl::IsUnimplemented(apart.status()) || absl::IsUnavailable(apart.status())) {
      return together;
    }
    RG_ASSIGN_OR_RETURN(std::unique_ptr<LoadedCall> in_turn, std::move(apart));
    Tuner& tuner = device_.tuner();
    const ChoiceKey key =
        tuner.Key("shared products 1",
                  absl::StrCat(device_.Compiler(), ", kernels ",
                               KernelsDigest(device_.dialect(), KernelsOf(calls))),
                  KeyOf(calls));
    LoadedCalls ways(
        {{std::string(kInTurn), in_turn.get()}, {std::string(kTogether), together.get()}});
    tuner.Begin(KeyOf(calls));
    absl::StatusOr<Choice> choice = tuner.Choose(key, MemoryOf(calls), ways);
    tuner.End();
    RG_RETURN_IF_ERROR(choice.status());
    std::string times;
    for (const TimedCandidate& candidate : choice->candidates) {
      absl::StrAppend(&times, absl::StrFormat("\n  %s: %.1f us", candidate.name, candidate.us));
    }
    // What was not timed is as it was planned.
    const bool slower = choice->timed() && choice->name() == kInTurn;
    return std::make_unique<ChosenCall>(std::move(slower ? in_turn : together), std::move(times));
  }

 private:
  ImplicitGemmLimits LimitsOf(absl::Span<const ExpectedCall> calls) const {
    return ConvolutionLimits(device_, *calls[0].facts);
  }

  GpuDevice& device_;
};

}  // namespace

std::unique_ptr<SharedCallLoader> MakeCudaSharedProductsLoader(GpuDevice& device) {
  return std::make_unique<CudaSharedProductsLoader>(device);
}

}  // namespace retrograd
