// Devices by the names that commands take: "host", "cuda", "cuda:1", "hip".
#ifndef RETROGRAD_TOOLS_EXECUTE_MAKE_DEVICE_H_
#define RETROGRAD_TOOLS_EXECUTE_MAKE_DEVICE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/device/device.h"
#include "runtime/devices/cuda_device.h"
#include "runtime/devices/hip_device.h"
#include "runtime/devices/host_device.h"

namespace retrograd {

// What each kind of device is made with; a number behind the name sets the ordinal.
struct DeviceChoices {
  HostDeviceOptions host;
  CudaDeviceOptions cuda;
  HipDeviceOptions hip;
};

// InvalidArgument, listing the names, for any other.
absl::StatusOr<std::unique_ptr<Device>> MakeDevice(absl::string_view name, DeviceChoices choices);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_EXECUTE_MAKE_DEVICE_H_
