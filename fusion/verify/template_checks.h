// What the plan checker asks of the schedules of each template: a row of functions, written apart
// from those that made the schedules.
#ifndef RETROGRAD_FUSION_VERIFY_TEMPLATE_CHECKS_H_
#define RETROGRAD_FUSION_VERIFY_TEMPLATE_CHECKS_H_

#include "fusion/verify/schedule_reading.h"

namespace retrograd {

struct TemplateCheck {
  Template id;
  // The walk fits the kernel's folds and reaches all of its points.
  absl::Status (*fits)(const ScheduleReading& r);
  // Bytes that it parks between launches. Null: none.
  int64_t (*workspace_bytes)(const ScheduleReading& r) = nullptr;
  bool loads_ahead = false;     // the next rows may be loaded while these are worked on
  bool stages_points = false;   // rows of points may lie in shared memory
  bool rows_with_ends = false;  // vectors need not fill the fastest axis
  bool shares_rows = false;     // clusters may have rows between their blocks
  bool holds_columns = false;   // clusters may hold rows in shared memory, and read them in stages
  bool has_tiles = false;       // vectors lie along an axis of tiles
  bool scatters = false;
  bool scans = false;
  // The point that writes an element is the only one that reads it where it stood before.
  bool in_place = true;
};

const TemplateCheck& CheckOf(Template id);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_VERIFY_TEMPLATE_CHECKS_H_
