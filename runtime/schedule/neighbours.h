// Neighbours: what of a plan may run beside what, by the device's table of interference.
#ifndef RETROGRAD_RUNTIME_SCHEDULE_NEIGHBOURS_H_
#define RETROGRAD_RUNTIME_SCHEDULE_NEIGHBOURS_H_

#include <cstdint>
#include <vector>

#include "fusion/device/interference.h"
#include "fusion/plan/plan.h"
#include "runtime/schedule/stream_schedule.h"

namespace retrograd {

class Neighbours {
 public:
  // Keeps the options' table.
  Neighbours(const FusionPlan& plan, const ScheduleOptions& options);

  // Runs alone: nothing beside it would gain.
  bool FillsChip(uint32_t group) const { return fills_chip_[group]; }
  // May run beside all others (CallOp::background).
  bool Background(uint32_t group) const { return background_[group]; }
  bool WorthOverlapping(double factor) const { return factor < worth_overlapping_; }
  // Time of both together, as a part of that of one after the other.
  double Factor(uint32_t a, uint32_t b) const {
    return table_.empty() ? 0.5 : table_.Factor(kinds_[a], shares_[a], kinds_[b], shares_[b]);
  }
  // By how much a step that lasts from `start` on is longer beside another one.
  int64_t LongerBeside(uint32_t group, int64_t price, int64_t start, const Step& other) const;

 private:
  const InterferenceTable& table_;
  const double worth_overlapping_;
  std::vector<WorkKind> kinds_;  // by group
  std::vector<double> shares_;   // of the chip
  std::vector<bool> fills_chip_, background_;
};

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_SCHEDULE_NEIGHBOURS_H_
