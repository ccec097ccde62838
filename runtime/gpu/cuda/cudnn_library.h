// cuDNN, loaded at run time, and its handle.
#ifndef RETROGRAD_RUNTIME_GPU_CUDA_CUDNN_LIBRARY_H_
#define RETROGRAD_RUNTIME_GPU_CUDA_CUDNN_LIBRARY_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace retrograd {

// cuDNN, bound to the CUDA context that is current when it is made. Not for several threads at
// once.
class CudnnHandle {
 public:
  // library: a path, or empty for where cuDNN is usually found. sm: 90 for compute capability 9.0.
  // Unavailable, saying what to install, where there is no cuDNN or the build had no headers.
  static absl::StatusOr<std::unique_ptr<CudnnHandle>> Create(const std::string& library, int sm);
  ~CudnnHandle();
  CudnnHandle(const CudnnHandle&) = delete;
  CudnnHandle& operator=(const CudnnHandle&) = delete;

  const std::string& version() const { return version_; }  // "cuDNN 9.19.0"
  int sm() const { return sm_; }
  void* native() const { return native_; }
  absl::Status UseStream(void* stream);  // a CUstream

 private:
  CudnnHandle() = default;
  void* native_ = nullptr;  // cudnnHandle_t
  void* stream_ = nullptr;
  std::string version_;
  int sm_ = 0;
};

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_GPU_CUDA_CUDNN_LIBRARY_H_
