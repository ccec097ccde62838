// Gathers at indices that nothing but constants decides.
#ifndef RETROGRAD_FUSION_LOWER_INDEXED_SLICE_GATHERS_H_
#define RETROGRAD_FUSION_LOWER_INDEXED_SLICE_GATHERS_H_

#include "absl/status/statusor.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// An index_select at a known index of a few runs (a roll, mirrored edges) as slices that are
// joined, and at windows, which may overlap, as views: what they are taken of then need not lie in
// memory first. A table that lies there (an input, a result of a call) is gathered from where
// several slices would be joined. Where several axes of the index decide different axes of the
// table, each is taken for itself.
absl::StatusOr<BackwardGraph> SliceKnownGathers(const BackwardGraph& graph);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_LOWER_INDEXED_SLICE_GATHERS_H_
