// A kernel that sums over indices stores its table and nothing else, so what its source is made of
// is made there alone or stored by another kernel. Rows that are gathered cost no more to gather
// than to read from where another kernel has stored them: each segment_add gets gathers of its own,
// with the pointwise ops between. Stands behind the pass that makes segment_adds, where no later
// pass merges equal nodes again.
#ifndef RETROGRAD_FUSION_LOWER_PRIVATE_PRIVATE_GATHERS_H_
#define RETROGRAD_FUSION_LOWER_PRIVATE_PRIVATE_GATHERS_H_

#include "absl/status/statusor.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

absl::StatusOr<BackwardGraph> PrivateGathers(const BackwardGraph& graph);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_LOWER_PRIVATE_PRIVATE_GATHERS_H_
