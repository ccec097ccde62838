// A schedule beside the kernel that it is to walk, as the plan checker reads the two.
#ifndef RETROGRAD_FUSION_VERIFY_SCHEDULE_READING_H_
#define RETROGRAD_FUSION_VERIFY_SCHEDULE_READING_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "fusion/plan/plan.h"

namespace retrograd {

// What the reductions say about rows and columns.
struct FoldReading {
  AxisMask long_axes = 0;         // of more or less than one position
  int fastest = -1;               // the last axis of more than one
  std::vector<AxisMask> folds;    // distinct sets of folded axes
  std::vector<AxisMask> folded;   // by instruction
  AxisMask across = 0, down = 0;  // the set with the fastest axis, and the other
};
FoldReading ReadFoldsOf(const KernelIr& ir);

// By instruction: whether it waits for a reduction of the given kind.
std::vector<bool> AfterFold(const KernelIr& ir, const FoldReading& r, bool across);

struct ScheduleReading {
  const KernelIr& ir;
  const Schedule& schedule;
  FoldReading folds;

  // "P7: its schedule .. WHY".
  absl::Status Misfit(absl::string_view why) const;
};

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_VERIFY_SCHEDULE_READING_H_
