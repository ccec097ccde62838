// Sums of gradient contributions as one op, and the order in which they are summed.
//
// Collecting stands after simplification (zeros are plain `full` by then) and before planning: the
// planner must see a sum whole to choose its first writer. Ordering stands right after it: each
// contribution is then added where it becomes available, so that the addition can fuse with
// whatever makes the contribution (a matmul by beta = 1), and no contribution waits in memory for
// the last one.
#ifndef RETROGRAD_GRAPH_PASSES_ACCUMULATE_H_
#define RETROGRAD_GRAPH_PASSES_ACCUMULATE_H_

#include "absl/status/statusor.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// Each maximal tree of `add` of equally shaped floating values, whose inner adds have one use,
// becomes one accumulate of its terms in depth-first order. A slice_scatter (step 1) into zeros, a
// chain of them into disjoint regions, and a pad with zeros that is only added, become terms with
// regions. An accumulate sums in the compute type and is rounded once.
absl::StatusOr<BackwardGraph> CollectAccumulates(const BackwardGraph& graph);

// Rewrites each accumulate of several contributions into a chain in the order in which they become
// available (ties: as they stand). Every step adds one contribution of the whole shape to the sum
// so far, with the contributions of smaller regions that came before it. The first of the whole
// shape is the first writer: nothing is zeroed for it. Accumulates without such a contribution
// stay one op, which writes every element once. With first_writer false each sum starts from
// zeros instead.
absl::StatusOr<BackwardGraph> OrderAccumulates(const BackwardGraph& graph, bool first_writer);

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_PASSES_ACCUMULATE_H_
