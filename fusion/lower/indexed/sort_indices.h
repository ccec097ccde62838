// Sums over indices go through sorted ones: index_add(base, index, src) becomes a sort_indices of
// the index and a segment_add of what it gives. One sort serves every sum over the same index, in
// whatever layer. A table that is narrowed next is stored narrow. Stands behind the algebra that
// finds equal indices, and before everything that looks at barriers, since a sort is one.
#ifndef RETROGRAD_FUSION_LOWER_INDEXED_SORT_INDICES_H_
#define RETROGRAD_FUSION_LOWER_INDEXED_SORT_INDICES_H_

#include "absl/status/statusor.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// Without index_add. A segment_add has a base of zeros: onto any other base it is an accumulate.
absl::StatusOr<BackwardGraph> SortIndices(const BackwardGraph& graph);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_LOWER_INDEXED_SORT_INDICES_H_
