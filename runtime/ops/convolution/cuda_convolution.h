// Convolutions and their gradients on the cuda device: by cuDNN or by kernels of ours, whichever is
// the faster, and what both refuse by another loader.
#ifndef RETROGRAD_RUNTIME_OPS_CONVOLUTION_CUDA_CONVOLUTION_H_
#define RETROGRAD_RUNTIME_OPS_CONVOLUTION_CUDA_CONVOLUTION_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "runtime/gpu/gpu_device.h"
#include "runtime/ops/convolution/convolution_backends.h"
#include "runtime/ops/convolution/cudnn_convolution.h"

namespace retrograd {

struct CudaConvolutionOptions {
  std::string cudnn_library;  // a path; empty: where it is usually found
  CudnnConvolutionOptions cudnn;
  bool allow_cudnn = true;
  ConvolutionBackends backends;
};

// One call, loaded: by cuDNN, by kernels of ours or, for the reason that refusal() gives, by the
// fallback.
class CudaConvolutionCall : public LoadedCall {
 public:
  // beside: lines for people about what was not chosen.
  CudaConvolutionCall(GpuDevice& device, std::shared_ptr<CudnnPlans> library,
                      std::string beside = "");
  // us: as measured; 0: it was not timed.
  CudaConvolutionCall(GpuDevice& device, std::unique_ptr<LoadedCall> ours, double us,
                      std::string beside, absl::Status refusal);

  void ForbidEarlyLaunches() override {
    if (ours_ != nullptr) ours_->ForbidEarlyLaunches();
  }
  absl::Status Run(int stream, const CallPointers& pointers, void* scratch) override;
  // "cuDNN, plan .. of 9" with the times and workspaces of all, or "kernels of ours, .." with the
  // others' times, or the fallback's own words and why it is one.
  std::string Describe() const override;

  // Null where cuDNN does not make this call.
  CudnnPlans* library() { return library_.get(); }
  // OK where it is no fallback.
  const absl::Status& refusal() const { return refusal_; }

 private:
  GpuDevice& device_;
  const std::shared_ptr<CudnnPlans> library_;
  const std::unique_ptr<LoadedCall> ours_;
  const std::string beside_;
  const absl::Status refusal_;
};

// Who loads convolution, convolution_input_gradient and convolution_weight_gradient on the cuda
// device of this compute capability (90 for 9.0). What cuDNN and our kernels refuse goes to
// `fallback`; where that is null the refusal is the answer.
std::unique_ptr<CallLoader> MakeCudaConvolutionLoader(GpuDevice& device, int sm,
                                                      const CudaConvolutionOptions& options,
                                                      std::unique_ptr<CallLoader> fallback);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_OPS_CONVOLUTION_CUDA_CONVOLUTION_H_
