// The values that the numbers of a device spec may have: number_ranges.def.
#ifndef RETROGRAD_FUSION_DEVICE_NUMBER_RANGES_H_
#define RETROGRAD_FUSION_DEVICE_NUMBER_RANGES_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace retrograd {

namespace v1 {
class DeviceSpecProto;
}

// Of one field of device_spec.proto, in its units.
struct NumberRange {
  absl::string_view message;  // "DeviceSpecProto", "RegisterModelProto"
  absl::string_view field;
  double least = 0, most = 0;
};

absl::Span<const NumberRange> NumberRanges();

// nullptr: there is none.
const NumberRange* FindNumberRange(absl::string_view message, absl::string_view field);

// Refuses a number out of its range, naming it, its value and the range, and a number that has no
// source; `where` leads the message. Numbers that a spec may leave out are not asked for.
absl::Status CheckNumberRanges(const v1::DeviceSpecProto& spec, absl::string_view where);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_DEVICE_NUMBER_RANGES_H_
