#include "runtime/ops/convolution/cuda_convolution.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/base/status.h"
#include "runtime/gpu/cuda/cudnn_choice.h"

namespace retrograd {
namespace {

class CudaConvolutionLoader : public CallLoader {
 public:
  CudaConvolutionLoader(GpuDevice& device, int sm, const CudaConvolutionOptions& options,
                        std::unique_ptr<CallLoader> fallback)
      : device_(device),
        sm_(sm),
        options_(options.cudnn),
        cudnn_("convolution 1", {.library = options.cudnn_library,
                                 .allow = options.allow_cudnn,
                                 .time_plans = options.time_plans}),
        fallback_(std::move(fallback)) {}

  absl::StatusOr<std::unique_ptr<LoadedCall>> Load(const Call& call,
                                                   const CallFacts& facts) override;

 private:
  absl::StatusOr<std::shared_ptr<CudnnPlans>> Library(const Call& call, const CallFacts& facts);

  GpuDevice& device_;
  const int sm_;
  const CudnnConvolutionOptions options_;
  CudnnChoice cudnn_;
  const std::unique_ptr<CallLoader> fallback_;
};

absl::StatusOr<std::shared_ptr<CudnnPlans>> CudaConvolutionLoader::Library(const Call& call,
                                                                           const CallFacts& facts) {
  RG_RETURN_IF_ERROR(CudnnConvolutionRefusal(call));
  return cudnn_.Choose({device_, sm_, device_.facts().model, device_.Cache()},
                       CudnnConvolutionRequest(call, facts, options_));
}

absl::StatusOr<std::unique_ptr<LoadedCall>> CudaConvolutionLoader::Load(const Call& call,
                                                                        const CallFacts& facts) {
  absl::StatusOr<std::shared_ptr<CudnnPlans>> library = Library(call, facts);
  if (library.ok()) return std::make_unique<CudaConvolutionCall>(device_, *std::move(library));
  const absl::Status refusal = library.status();
  const bool refused = absl::IsUnimplemented(refusal) || absl::IsUnavailable(refusal);
  if (!refused || fallback_ == nullptr) return refusal;
  RG_ASSIGN_OR_RETURN(std::unique_ptr<LoadedCall> loaded, fallback_->Load(call, facts));
  return std::make_unique<CudaConvolutionCall>(device_, std::move(loaded), refusal);
}

}  // namespace

CudaConvolutionCall::CudaConvolutionCall(GpuDevice& device, std::shared_ptr<CudnnPlans> library)
    : LoadedCall(library->workspace_bytes(), library->microseconds()),
      device_(device),
      library_(std::move(library)) {}

CudaConvolutionCall::CudaConvolutionCall(GpuDevice& device, std::unique_ptr<LoadedCall> fallback,
                                         absl::Status refusal)
    : LoadedCall(fallback->scratch_bytes()),
      device_(device),
      fallback_(std::move(fallback)),
      refusal_(std::move(refusal)) {}

absl::Status CudaConvolutionCall::Run(int stream, const CallPointers& pointers, void* scratch) {
  if (fallback_ != nullptr) return fallback_->Run(stream, pointers, scratch);
  const CurrentContext current(device_.driver(), device_.context());
  RG_RETURN_IF_ERROR(current.status());
  return library_->Run(device_.Stream(stream), pointers, scratch);
}

std::string CudaConvolutionCall::Describe() const {
  if (library_ != nullptr) return library_->Describe();
  const std::string fallback = fallback_->Describe();
  return absl::StrCat(fallback.empty() ? "the fallback" : fallback, ", because ",
                      refusal_.message());
}

std::unique_ptr<CallLoader> MakeCudaConvolutionLoader(GpuDevice& device, int sm,
                                                      const CudaConvolutionOptions& options,
                                                      std::unique_ptr<CallLoader> fallback) {
  return std::make_unique<CudaConvolutionLoader>(device, sm, options, std::move(fallback));
}

}  // namespace retrograd
