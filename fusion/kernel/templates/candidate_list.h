// The schedules of one kernel that are worth pricing, as its template adds them.
#ifndef RETROGRAD_FUSION_KERNEL_TEMPLATES_CANDIDATE_LIST_H_
#define RETROGRAD_FUSION_KERNEL_TEMPLATES_CANDIDATE_LIST_H_

#include <vector>

#include "absl/container/inlined_vector.h"
#include "fusion/kernel/templates/registers.h"

namespace retrograd {

inline constexpr int64_t kMaxBlocks = (int64_t{1} << 31) - 1;
inline constexpr int kThreads = 256;  // of a block, where nothing else decides

class CandidateList {
 public:
  CandidateList(const KernelIr& ir, const KernelProfile& profile, const ScheduleLimits& limits);

  // Leaves out what a block cannot be, and what the list has.
  void Add(Schedule s);

  const KernelIr& ir() const { return ir_; }
  const KernelProfile& profile() const { return profile_; }
  const RowsAndColumns& shape() const { return profile_.shape.shape; }
  const ScheduleLimits& limits() const { return limits_; }
  int widest() const { return widest_; }  // vector that any large tensor of the kernel takes
  // The same, and a wider one that leaves ends of rows, for templates that handle those.
  absl::InlinedVector<int, 2> widths() const;
  // Shared memory that a block declares, in the launch where it is most.
  int64_t MostShared(const Schedule& s) const;
  std::vector<Schedule> Take() { return std::move(list_); }

 private:
  const KernelIr& ir_;
  const KernelProfile& profile_;
  const ScheduleLimits& limits_;
  const int widest_;
  std::vector<Schedule> list_;
};

// Passes over the points, one after the other.
void AddPasses(CandidateList& list);
// Teams of threads that have a row each, or several.
void AddRowReductions(CandidateList& list);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_TEMPLATES_CANDIDATE_LIST_H_
