// The schedules of one kernel that are worth pricing, as its template adds them.
#ifndef RETROGRAD_FUSION_KERNEL_TEMPLATES_CANDIDATE_LIST_H_
#define RETROGRAD_FUSION_KERNEL_TEMPLATES_CANDIDATE_LIST_H_

#include <vector>

#include "fusion/kernel/templates/schedule.h"

namespace retrograd {

inline constexpr int64_t kMaxBlocks = (int64_t{1} << 31) - 1;
inline constexpr int kThreads = 256;  // of a block, where nothing else decides

// What the reductions of a kernel add up in.
struct Accumulators {
  int64_t reductions = 0;
  int64_t widest = 4;   // bytes
  int64_t element = 0;  // bytes, one of each type
};

class CandidateList {
 public:
  CandidateList(const KernelIr& ir, const RowsAndColumns& shape, const ScheduleLimits& limits);

  // Leaves out what a block cannot be, and what the list has. `shared_bytes`: no less than what
  // the kernel's text declares.
  void Add(Schedule s, int64_t shared_bytes = 0);

  const KernelIr& ir() const { return ir_; }
  const RowsAndColumns& shape() const { return shape_; }
  const ScheduleLimits& limits() const { return limits_; }
  int widest() const { return widest_; }  // vector that any large tensor of the kernel takes
  const Accumulators& accumulators() const { return accumulators_; }
  // Shared memory in which thread rows add up their columns.
  int64_t TileBytes(const Schedule& s) const;
  std::vector<Schedule> Take() { return std::move(list_); }

 private:
  const KernelIr& ir_;
  const RowsAndColumns& shape_;
  const ScheduleLimits& limits_;
  const int widest_;
  Accumulators accumulators_;
  std::vector<Schedule> list_;
};

// Passes over the points, one after the other.
void AddPasses(CandidateList& list);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_TEMPLATES_CANDIDATE_LIST_H_
