// NVIDIA's driver as a GpuDriver.
#ifndef RETROGRAD_RUNTIME_GPU_CUDA_CUDA_DRIVER_H_
#define RETROGRAD_RUNTIME_GPU_CUDA_CUDA_DRIVER_H_

#include <string>

#include "absl/status/statusor.h"
#include "runtime/gpu/gpu_driver.h"

namespace retrograd {

// The driver, initialised. Loaded once for each path; empty: where drivers are usually found.
// Unavailable, saying why, where there is none.
absl::StatusOr<const GpuDriver*> LoadCudaDriver(const std::string& library);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_GPU_CUDA_CUDA_DRIVER_H_
