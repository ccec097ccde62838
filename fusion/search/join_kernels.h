// Kernels of more ops than a search looks at: the kernels that it found, joined where that pays.
//
// The searches price a kernel for each set of atoms that they look at, and a long one takes as
// much time as many short ones. What they find is joined in the end, neighbours pair by pair: as it
// was found, or from kernels of all atoms that make equally many elements between the same folds.
// Or all atoms in one kernel.
#ifndef RETROGRAD_FUSION_SEARCH_JOIN_KERNELS_H_
#define RETROGRAD_FUSION_SEARCH_JOIN_KERNELS_H_

#include <cstdint>
#include <vector>

#include "fusion/search/partition.h"

namespace retrograd {

// `partition` has kernels of at most max_searched_ops ops. It costs less afterwards, or is as it
// was.
void JoinKernels(const std::vector<Atom>& atoms, const GroupPricer& pricer,
                 int64_t max_searched_ops, absl::Span<const Constraint> constraints,
                 Partition& partition);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_SEARCH_JOIN_KERNELS_H_
