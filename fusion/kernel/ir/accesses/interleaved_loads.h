// Loads of one buffer whose elements take turns: the even and the odd elements of a row, or slices
// of a tensor that was stacked along its last axis. Lane by lane each of them brings in one element
// of every `stride`; together they read whole vectors.
#ifndef RETROGRAD_FUSION_KERNEL_IR_ACCESSES_INTERLEAVED_LOADS_H_
#define RETROGRAD_FUSION_KERNEL_IR_ACCESSES_INTERLEAVED_LOADS_H_

#include <vector>

#include "absl/types/span.h"
#include "fusion/kernel/ir/accesses/vector_access.h"

namespace retrograd {

struct InterleavedLoads {
  struct Member {
    int instr = 0;
    int place = 0;  // lane j is element j·stride + place of the run
  };
  std::vector<Member> members;
  int places() const;  // that are read
  int stride = 0;      // of neighbouring lanes, in elements
  int width = 0;       // elements of one access
  IndexExpr offset;    // where the run of stride·lanes elements begins: a multiple of `width`
};

// Among these loads of the kernel: those whose lanes go alone otherwise, have no guards and no
// looked-up rows, and of which at least two share a run. The first and the last element of a stride
// are among what each run's loads read, so that it holds nothing outside the buffer, and at least
// half of its elements are read.
std::vector<InterleavedLoads> FindInterleavedLoads(const KernelIr& ir, absl::Span<const int> loads,
                                                   const Vectors& vectors);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_IR_ACCESSES_INTERLEAVED_LOADS_H_
