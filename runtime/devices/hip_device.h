// The device for AMD's GPUs: kernels by HIPRTC, matmuls by hipBLASLt where there is one, attention
// by kernels of ours, everything loaded when it is first needed. Compiled by HIPRTC for gfx90a and
// run through a driver that executes the kernels on the host; never run on AMD hardware.
#ifndef RETROGRAD_RUNTIME_DEVICES_HIP_DEVICE_H_
#define RETROGRAD_RUNTIME_DEVICES_HIP_DEVICE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/device/device.h"
#include "runtime/device/shared_kernels.h"
#include "runtime/gpu/gpu_module.h"
#include "runtime/gpu/loaded_module.h"
#include "runtime/tuning/tuning.h"

namespace retrograd {

struct HipDeviceOptions {
  int ordinal = 0;             // among the devices that the driver shows
  std::string driver_library;  // paths; empty: where they are usually found
  std::string hipblaslt_library;
  GpuCompileOptions compile;
  bool cache = true;      // keep compiled kernels and timed choices on disk
  std::string cache_dir;  // empty: ModuleCache::DefaultDirectory("hip")
  int64_t cache_bytes = int64_t{512} << 20;
  bool time_calls = true;          // try implementations for each library call and keep the fastest
  std::shared_ptr<Tuning> tuning;  // shared with other devices; null: of its own
  std::shared_ptr<SharedKernels<SharedCode>> shared_kernels;  // as GpuDeviceOptions has it
};

// Unavailable, saying why, where there is no driver or no such device.
absl::StatusOr<std::unique_ptr<Device>> MakeHipDevice(const HipDeviceOptions& options);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_DEVICES_HIP_DEVICE_H_
