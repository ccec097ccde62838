// CudaTrace: what ran on the GPU and when, as CUPTI tells it. The library is loaded when first
// asked for: it comes with the CUDA toolkit, and with PyTorch.
#ifndef RETROGRAD_RUNTIME_GPU_CUDA_CUPTI_TRACE_H_
#define RETROGRAD_RUNTIME_GPU_CUDA_CUPTI_TRACE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/device/device.h"

namespace retrograd {

// One at a time in a process: everything that the process runs is traced.
class CudaTrace {
 public:
  // library: a path; empty: where it is usually found. Unavailable, saying why, without it.
  static absl::StatusOr<std::unique_ptr<CudaTrace>> Start(const std::string& library);
  virtual ~CudaTrace() = default;

  // What finished since the last call, by begin. The device must be idle.
  virtual absl::StatusOr<std::vector<TracedWork>> Take() = 0;
};

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_GPU_CUDA_CUPTI_TRACE_H_
