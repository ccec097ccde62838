#include "runtime/schedule/schedule_options.h"

#include "fusion/device/interference.h"
#include "fusion/device/parse_once.h"
#include "graph/base/status.h"

namespace retrograd {

absl::StatusOr<ScheduleOptions> ScheduleOptionsFor(const DeviceSpec& spec,
                                                   absl::string_view spec_text, int streams) {
  ScheduleOptions options{.streams = streams, .chip_blocks = spec.sms};
  static auto& parsed = *new ParseOnce<InterferenceTable>;
  RG_ASSIGN_OR_RETURN(options.interference, parsed.Get(spec_text, [&] {
    return ParseInterference(spec_text, spec.name);
  }));
  options.worth_overlapping = 1e-6 * static_cast<double>(spec.stream_worth_ppm);
  options.most_overlapped_ps = spec.stream_longest_ps;
  options.edge_ps = spec.stream_edge_ps;
  options.worth_streams = 1e-6 * static_cast<double>(spec.stream_gain_ppm);
  return options;
}

}  // namespace retrograd
