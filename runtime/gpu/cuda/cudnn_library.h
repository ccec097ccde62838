// cuDNN, loaded at run time, and its handle.
#ifndef RETROGRAD_RUNTIME_GPU_CUDA_CUDNN_LIBRARY_H_
#define RETROGRAD_RUNTIME_GPU_CUDA_CUDNN_LIBRARY_H_

#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/gpu/gpu_driver.h"

namespace retrograd {

// cuDNN, bound to the CUDA context that is current when it is made. For one thread at once: who
// uses it while others may holds its Lock.
class CudnnHandle {
 public:
  // library: a path, or empty for where cuDNN is usually found. sm: 90 for compute capability 9.0.
  // Unavailable, saying what to install, where there is no cuDNN or the build had no headers.
  static absl::StatusOr<std::unique_ptr<CudnnHandle>> Create(const std::string& library, int sm);
  // The same, one for all who ask in the context as long as one of them holds it: a handle takes
  // 9 MB of device memory, and programs of hundreds of sizes have a device each.
  static absl::StatusOr<std::shared_ptr<CudnnHandle>> Shared(const std::string& library, int sm,
                                                             const GpuContext& context);
  ~CudnnHandle();
  CudnnHandle(const CudnnHandle&) = delete;
  CudnnHandle& operator=(const CudnnHandle&) = delete;

  const std::string& version() const { return version_; }  // "cuDNN 9.19.0"
  int sm() const { return sm_; }
  void* native() const { return native_; }
  std::unique_lock<std::mutex> Lock() { return std::unique_lock(mutex_); }
  absl::Status UseStream(void* stream);  // a CUstream

 private:
  CudnnHandle() = default;
  std::mutex mutex_;
  void* native_ = nullptr;  // cudnnHandle_t
  void* stream_ = nullptr;
  std::string version_;
  int sm_ = 0;
};

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_GPU_CUDA_CUDNN_LIBRARY_H_
