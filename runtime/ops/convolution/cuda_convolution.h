// Convolutions and their gradients on the cuda device: by cuDNN, and what it refuses by another
// loader.
#ifndef RETROGRAD_RUNTIME_OPS_CONVOLUTION_CUDA_CONVOLUTION_H_
#define RETROGRAD_RUNTIME_OPS_CONVOLUTION_CUDA_CONVOLUTION_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "runtime/gpu/gpu_device.h"
#include "runtime/ops/convolution/cudnn_convolution.h"

namespace retrograd {

struct CudaConvolutionOptions {
  std::string cudnn_library;  // a path; empty: where it is usually found
  CudnnConvolutionOptions cudnn;
  bool time_plans = true;  // try every plan of cuDNN for each call and keep the fastest
  bool allow_cudnn = true;
};

// One call, loaded: by cuDNN or, for the reason that refusal() gives, by the fallback.
class CudaConvolutionCall : public LoadedCall {
 public:
  CudaConvolutionCall(GpuDevice& device, std::shared_ptr<CudnnPlans> library);
  CudaConvolutionCall(GpuDevice& device, std::unique_ptr<LoadedCall> fallback,
                      absl::Status refusal);

  absl::Status Run(int stream, const CallPointers& pointers, void* scratch) override;
  // "cuDNN, plan .. of 9" with the times and workspaces of all, or the fallback's own words
  // and why it is one.
  std::string Describe() const override;

  // Null where cuDNN does not make this call.
  CudnnPlans* library() { return library_.get(); }
  const absl::Status& refusal() const { return refusal_; }

 private:
  GpuDevice& device_;
  const std::shared_ptr<CudnnPlans> library_;
  const std::unique_ptr<LoadedCall> fallback_;
  const absl::Status refusal_;
};

// Who loads convolution, convolution_input_gradient and convolution_weight_gradient on the cuda
// device of this compute capability (90 for 9.0). What cuDNN refuses goes to `fallback`; where that
// is null the refusal is the answer.
std::unique_ptr<CallLoader> MakeCudaConvolutionLoader(GpuDevice& device, int sm,
                                                      const CudaConvolutionOptions& options,
                                                      std::unique_ptr<CallLoader> fallback);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_OPS_CONVOLUTION_CUDA_CONVOLUTION_H_
