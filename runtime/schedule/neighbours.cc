#include "runtime/schedule/neighbours.h"

#include <algorithm>
#include <limits>

#include "fusion/calls/work.h"

namespace retrograd {

Neighbours::Neighbours(const FusionPlan& plan, const ScheduleOptions& options)
    : table_(options.interference), worth_overlapping_(options.worth_overlapping) {
  const auto sms = static_cast<double>(std::max<int64_t>(options.chip_blocks, 1));
  for (const Group& group : plan.groups) {
    const Work work = WorkOf(group);
    background_.push_back(work.background);
    if (table_.empty()) {
      fills_chip_.push_back(retrograd::FillsChip(work, options.chip_blocks));
      continue;
    }
    // With a share that no row has it is overlapped with nothing.
    const bool known = work.kind.has_value() && work.ps <= options.most_overlapped_ps;
    const double share =
        known ? static_cast<double>(work.blocks) / sms : std::numeric_limits<double>::infinity();
    kinds_.push_back(work.kind.value_or(WorkKind::kKernel));
    shares_.push_back(share);
    fills_chip_.push_back(share > 0 && !table_.Pays(kinds_.back(), share, worth_overlapping_));
  }
}

int64_t Neighbours::LongerBeside(uint32_t group, int64_t price, int64_t start,
                                 const Step& other) const {
  const int64_t shared = std::min(other.end_ps, start + price) - std::max(other.start_ps, start);
  if (shared <= 0) return 0;
  // Two of equal times t take 2 * factor * t.
  const double factor = Factor(group, Index(other.group));
  return std::max<int64_t>(static_cast<int64_t>(static_cast<double>(shared) * (2 * factor - 1)), 0);
}

}  // namespace retrograd
