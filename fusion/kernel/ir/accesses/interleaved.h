// Loads whose lanes lie among each other in memory: the even and the odd elements of a row, slices
// of a tensor that was stacked along its last axis, or the elements that only some lanes need
// because they repeat or are guarded by a remainder. Together they read whole vectors. Stores
// likewise: of parts that are joined along the last axis, or of one value whose lanes lie apart.
#ifndef RETROGRAD_FUSION_KERNEL_IR_ACCESSES_INTERLEAVED_H_
#define RETROGRAD_FUSION_KERNEL_IR_ACCESSES_INTERLEAVED_H_

#include <vector>

#include "absl/types/span.h"
#include "fusion/kernel/ir/accesses/vector_access.h"

namespace retrograd {

// Elements that the lanes of several loads, or stores, find in common accesses.
struct InterleavedRun {
  struct Member {
    int number = 0;            // of the load's instruction, or of the store
    std::vector<int> element;  // by lane: which of the run's elements; -1: the load's fill
  };
  std::vector<Member> members;
  int width = 0;                 // elements of one access
  std::vector<IndexExpr> begin;  // of each access, a multiple of `width` at lane 0
  std::vector<Guard> guards;     // of loads, one truth for all lanes; where they fail, each is 0
  int elements() const { return width * static_cast<int>(begin.size()); }
  int distinct() const;  // that lanes read or write
};

// Among these loads of the kernel: those whose lanes go alone otherwise and that look up no rows.
// An access reaches neither before the first nor behind the last element that loads from the same
// place on, under the same guards, read: it stays inside the buffer. Of a run at least half is
// read.
std::vector<InterleavedRun> FindInterleavedLoads(const KernelIr& ir, absl::Span<const int> loads,
                                                 const Vectors& vectors);

// Among these stores, which do not add: those whose lanes go alone otherwise. Each element of a run
// is written by one lane of one store. All stores of a run vary over the same axes.
std::vector<InterleavedRun> FindInterleavedStores(const KernelIr& ir, absl::Span<const int> stores,
                                                  const Vectors& vectors);

// Whether vectors reach all elements of all large accesses by several at once, alone or in runs.
bool GoesByVectors(const KernelIr& ir, const Vectors& vectors);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_IR_ACCESSES_INTERLEAVED_H_
