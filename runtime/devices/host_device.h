// The device that is always there: generated kernels compiled as C++ and run on the calling thread,
// matmuls through a BLAS. Streams exist in name only: work is done when it is issued, so that an
// order of issue that the schedule allows is an order of execution.
#ifndef RETROGRAD_RUNTIME_DEVICES_HOST_DEVICE_H_
#define RETROGRAD_RUNTIME_DEVICES_HOST_DEVICE_H_

#include <memory>

#include "runtime/device/device.h"
#include "runtime/device/shared_kernels.h"
#include "runtime/host/host_module.h"
#include "runtime/ops/convolution/convolution_backends.h"

namespace retrograd {

struct HostDeviceOptions {
  HostCompileOptions compile;  // .check: the checking build of kernels, and fresh memory poisoned
  uint64_t seed = 0;           // of the order of blocks and threads in each launch
  // Plain loops stand in for cuDNN; without it, kernels of ours make what they can.
  ConvolutionBackends convolution;
  // As GpuDeviceOptions has it.
  std::shared_ptr<SharedKernels<HostModule>> shared_kernels;
};

std::unique_ptr<Device> MakeHostDevice(const HostDeviceOptions& options);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_DEVICES_HOST_DEVICE_H_
