// Sums of strided slices that are one stack.
#ifndef RETROGRAD_GRAPH_PASSES_SUMS_OF_TURNS_H_
#define RETROGRAD_GRAPH_PASSES_SUMS_OF_TURNS_H_

#include "absl/status/statusor.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// An accumulate of values that take turns along an axis, each scattered into zeros at every s-th
// place from another of the first s on, is the values side by side along a new axis of s places
// behind that one. So is one whose values take turns along several axes. The gradient of
// `cat([x[:, 0::2], x[:, 1::2]])` is such a sum, which neighbours of tokens and bands of wavelets
// are made of. No element has more than one contribution: the sums are the same, but for the sign
// of a zero.
//
// Stands behind CollectAccumulates, which makes a sum one op.
absl::StatusOr<BackwardGraph> StackTurns(const BackwardGraph& graph);

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_PASSES_SUMS_OF_TURNS_H_
