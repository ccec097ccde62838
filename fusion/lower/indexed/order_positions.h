// What sums at the same sorted indices read of each position, such as the other end of an edge, is
// put into the order of the sorted list once. A sum goes through the list from front to back; in
// that order its neighbours in a warp read neighbours in memory, where they would read somewhere
// each. Stands behind the sorts, before barriers are looked at.
#ifndef RETROGRAD_FUSION_LOWER_INDEXED_ORDER_POSITIONS_H_
#define RETROGRAD_FUSION_LOWER_INDEXED_ORDER_POSITIONS_H_

#include "absl/status/statusor.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// The graph with segment_adds whose sources stand in order, for each list of several of them that
// share something of each position, if nothing else needs what is made of it in the given order.
// Whether that pays, prices of whole plans tell (fusion/planner/planner.cc).
absl::StatusOr<BackwardGraph> OrderPositions(const BackwardGraph& graph);

// Whether any sum of a lowered graph goes so.
bool HasSumsInOrder(const BackwardGraph& graph);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_LOWER_INDEXED_ORDER_POSITIONS_H_
