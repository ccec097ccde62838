// The numbers of a device spec by name, to ask what a plan would be if one of them were another.
#ifndef RETROGRAD_FUSION_DEVICE_DEVICE_NUMBERS_H_
#define RETROGRAD_FUSION_DEVICE_DEVICE_NUMBERS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace retrograd {

struct DeviceNumber {
  std::string name;  // of the field in device_spec.proto, which names the unit: "launch_graph_us"
  double value = 0;
};

// Those of a spec's text form, in the order of device_spec.proto; `where` leads error messages.
absl::StatusOr<std::vector<DeviceNumber>> DeviceNumbers(absl::string_view text,
                                                        absl::string_view where);

// The text form with other numbers, and a name that says so: "h200 with max_registers=320".
// Whether they make a device is ParseDeviceSpec's to say.
absl::StatusOr<std::string> WithDeviceNumbers(absl::string_view text, absl::string_view where,
                                              absl::Span<const DeviceNumber> numbers);

// "max_registers=320", "hbm_bytes_per_s=3.9e12".
absl::StatusOr<DeviceNumber> ParseDeviceNumber(absl::string_view text);

// Shortest text that reads back as the same number: "320", "4.41e+12".
std::string PrintNumber(double value);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_DEVICE_DEVICE_NUMBERS_H_
