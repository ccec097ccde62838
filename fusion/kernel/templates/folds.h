// What the reductions of an IR fold, read once for all templates that might walk it.
#ifndef RETROGRAD_FUSION_KERNEL_TEMPLATES_FOLDS_H_
#define RETROGRAD_FUSION_KERNEL_TEMPLATES_FOLDS_H_

#include <string>
#include <vector>

#include "fusion/kernel/templates/schedule.h"

namespace retrograd {

struct Folds {
  std::vector<AxisMask> sets;  // distinct sets of folded axes, in the order of the instructions
  AxisMask long_axes = 0;      // of more or less than one position
  int fastest = -1;            // axis; -1: every extent is 0 or 1

  bool across(AxisMask set) const { return fastest < 0 || (set >> fastest & 1) != 0; }
};
Folds ReadFolds(const KernelIr& ir);

Classification Recognised(const KernelIr& ir, Template id, AxisMask rows, AxisMask columns);
Classification Refused(std::string reason);

// What follows a column reduction exists once all rows have been walked, so it may vary over
// columns only and feed no other reduction. Empty, or how the IR breaks this.
std::string ColumnResultMisused(const KernelIr& ir, AxisMask columns, AxisMask long_axes);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_TEMPLATES_FOLDS_H_
