// A partition made better by moving a piece of one kernel at a time, where a region is too large
// to be searched exactly.
//
// A piece is an atom, alone or with what it follows from, or what follows from it, within its
// kernel. It moves into a neighbouring kernel or becomes one of its own; a whole kernel may move,
// too, or three become one. The first move that pays is made, until none does.
#ifndef RETROGRAD_FUSION_SEARCH_LOCAL_SEARCH_H_
#define RETROGRAD_FUSION_SEARCH_LOCAL_SEARCH_H_

#include <vector>

#include "fusion/search/exact_search.h"

namespace retrograd {

// `parts`: kernels of all atoms of the search, in any order, that obey the constraints. Costs at
// most what they cost. Stops at the first move after kernels of `max_work` (GroupPrice::work) have
// been priced. No parts: there is a cycle, or one of `parts` is no kernel.
Partition ImproveLocally(ExactSearch& search, std::vector<AtomMask> parts, int64_t max_work,
                         absl::Span<const Constraint> constraints = {});

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_SEARCH_LOCAL_SEARCH_H_
