// Which of cuDNN's plans makes a graph here: the fastest, found by running them once for each shape
// and remembered on disk.
#ifndef RETROGRAD_RUNTIME_GPU_CUDA_CUDNN_CHOICE_H_
#define RETROGRAD_RUNTIME_GPU_CUDA_CUDNN_CHOICE_H_

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/gpu/cuda/cudnn_plans.h"
#include "runtime/gpu/gpu_device.h"

namespace retrograd {

// Where graphs are prepared.
struct CudnnPlace {
  GpuDevice& device;
  int sm = 0;  // 90 for compute capability 9.0
};

struct CudnnChoiceOptions {
  std::string library;  // a path; empty: where it is usually found
  bool allow = true;
};

// cuDNN's handle, the context's, loaded when it is first asked for, and the plans chosen so far,
// since layers repeat their calls. Made, used and destroyed in the device's context.
class CudnnChoice {
 public:
  // kind: of the entries on disk, with the version of what their keys mean: "attention 1".
  CudnnChoice(absl::string_view kind, const CudnnChoiceOptions& options)
      : kind_(kind), options_(options) {}
  ~CudnnChoice();
  CudnnChoice(const CudnnChoice&) = delete;
  CudnnChoice& operator=(const CudnnChoice&) = delete;

  // Of the library, as entries on disk name it. Unavailable where there is no cuDNN.
  absl::StatusOr<std::string> Version(const CudnnPlace& place);

  // Unavailable where there is no cuDNN, Unimplemented where it refuses.
  absl::StatusOr<std::shared_ptr<CudnnPlans>> Choose(const CudnnPlace& place,
                                                     const CudnnRequest& request);
  // By the plan that was chosen for `timed`, a request of the same kind and other extents; that of
  // the request itself where cuDNN does not take `timed`, or the plan not the request.
  absl::StatusOr<std::shared_ptr<CudnnPlans>> ChooseLike(const CudnnPlace& place,
                                                         const CudnnRequest& request,
                                                         const CudnnRequest& timed);

 private:
  absl::Status LoadHandle(const CudnnPlace& place);
  // Once there is a handle.
  ChoiceKey KeyOf(const CudnnPlace& place, const CudnnRequest& request) const;

  const std::string kind_;
  const CudnnChoiceOptions options_;
  std::shared_ptr<CudnnHandle> handle_;
  absl::Status no_handle_;                                    // why there is none, once tried
  std::map<std::string, std::shared_ptr<CudnnPlans>> known_;  // by key
};

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_GPU_CUDA_CUDNN_CHOICE_H_
