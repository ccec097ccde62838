// A join along an axis makes two branches that often do the same to different elements: rotary
// positions, the halves of a gated projection. Then the element is chosen by its address and the
// work is done once, in place of both branches at every point. So such loads lose their guards as
// well, which keeps their lanes whole.
#ifndef RETROGRAD_FUSION_KERNEL_BUILD_UNIFY_BRANCHES_H_
#define RETROGRAD_FUSION_KERNEL_BUILD_UNIFY_BRANCHES_H_

#include "absl/types/span.h"
#include "fusion/kernel/ir/kernel_ir.h"

namespace retrograd {

// The value of `inside` where the guard holds and of `outside` elsewhere, if the guard cuts one
// axis in two and both are alike: an instruction, some of them new at the end of ir.instrs. -1 if
// they are not. What they were made from may be left unused.
int MergeBranches(const Guard& guard, int inside, int outside, absl::Span<const int64_t> extents,
                  KernelIr& ir);

// Takes out the instructions that nothing is made from.
void RemoveUnused(KernelIr& ir);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_BUILD_UNIFY_BRANCHES_H_
