// The device for NVIDIA's GPUs: kernels by NVRTC, matmuls by cuBLASLt, attention and
// convolutions by cuDNN, everything loaded when the device is made.
#ifndef RETROGRAD_RUNTIME_DEVICES_CUDA_DEVICE_H_
#define RETROGRAD_RUNTIME_DEVICES_CUDA_DEVICE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/device/device.h"
#include "runtime/device/shared_kernels.h"
#include "runtime/gpu/gpu_module.h"
#include "runtime/gpu/loaded_module.h"
#include "runtime/ops/attention/cuda_attention.h"
#include "runtime/ops/convolution/cuda_convolution.h"
#include "runtime/tuning/tuning.h"

namespace retrograd {

struct CudaDeviceOptions {
  int ordinal = 0;             // among the devices that the driver shows
  std::string driver_library;  // paths; empty: where they are usually found
  std::string cublas_library;
  std::string cupti_library;
  GpuCompileOptions compile;
  bool cache = true;      // keep compiled kernels and timed choices on disk
  std::string cache_dir;  // empty: ModuleCache::DefaultDirectory("cuda")
  int64_t cache_bytes = int64_t{512} << 20;
  bool time_calls = true;          // try implementations for each library call and keep the fastest
  std::shared_ptr<Tuning> tuning;  // shared with other devices; null: of its own
  std::shared_ptr<SharedKernels<SharedCode>> shared_kernels;  // as GpuDeviceOptions has it
  CudaAttentionOptions attention;
  CudaConvolutionOptions convolution;
};

// Unavailable, saying why, where there is no driver or no such device, or where the build had no
// CUDA headers.
absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(const CudaDeviceOptions& options);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_DEVICES_CUDA_DEVICE_H_
