// The spec that a device is planned by: one that the caller names, the device's own, or the nearest
// of those that came with the library.
#ifndef RETROGRAD_RUNTIME_EXECUTABLE_CHOOSE_SPEC_H_
#define RETROGRAD_RUNTIME_EXECUTABLE_CHOOSE_SPEC_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "fusion/device/device_numbers.h"
#include "fusion/device/device_spec.h"

namespace retrograd {

class Device;

// What is planned for where no device is given, and on the host, which runs the kernels of any.
inline constexpr absl::string_view kReferenceSpec = "h200";

struct ChosenSpec {
  DeviceSpec spec;
  std::string text;  // its text form
  std::string note;  // one line where the numbers are those of another device; else empty
};

// By name or by the path of a .textproto file, with `numbers` in the place of its own.
absl::StatusOr<ChosenSpec> NamedSpec(absl::string_view name_or_path,
                                     absl::Span<const DeviceNumber> numbers = {});

// Of the device. One spec names its model and has its arch; else the nearest is taken: of the same
// vendor, then of the same or the nearest arch, then by what the models' names have in common, then
// by the number of SMs; then a calibrated one.
absl::StatusOr<ChosenSpec> SpecOf(const Device& device,
                                  absl::Span<const DeviceNumber> numbers = {});

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_EXECUTABLE_CHOOSE_SPEC_H_
