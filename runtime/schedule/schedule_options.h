// What a device's spec says about scheduling streams.
#ifndef RETROGRAD_RUNTIME_SCHEDULE_SCHEDULE_OPTIONS_H_
#define RETROGRAD_RUNTIME_SCHEDULE_SCHEDULE_OPTIONS_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "fusion/device/device_spec.h"
#include "runtime/schedule/stream_schedule.h"

namespace retrograd {

// spec_text: the spec's text form, which has the table of interference.
absl::StatusOr<ScheduleOptions> ScheduleOptionsFor(const DeviceSpec& spec,
                                                   absl::string_view spec_text, int streams);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_SCHEDULE_SCHEDULE_OPTIONS_H_
