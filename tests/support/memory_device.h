// A reporting device whose memory is the host's: what is copied in can be copied out.
#ifndef RETROGRAD_TESTS_SUPPORT_MEMORY_DEVICE_H_
#define RETROGRAD_TESTS_SUPPORT_MEMORY_DEVICE_H_

#include <cstdint>
#include <cstring>

#include "tests/support/reporting_device.h"

namespace retrograd {

class MemoryDevice : public ReportingDevice {
 public:
  MemoryDevice() : ReportingDevice({}) {}
  absl::Status CopyIn(void* device, const void* host, int64_t bytes) override {
    if (bytes > 0) std::memcpy(device, host, static_cast<size_t>(bytes));
    return absl::OkStatus();
  }
  absl::Status CopyOut(void* host, const void* device, int64_t bytes) override {
    if (bytes > 0) std::memcpy(host, device, static_cast<size_t>(bytes));
    return absl::OkStatus();
  }
};

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_MEMORY_DEVICE_H_
