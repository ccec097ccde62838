// The same graph for a larger or smaller batch: one dimension, wherever it appears, replaced by a
// multiple or a fraction of itself in all shapes, strides and attributes.
//
// Constants keep their values (the 1/N of a mean would be another one): the result is for asking
// what a plan would be, not for training.
#ifndef RETROGRAD_GRAPH_PASSES_REBATCH_H_
#define RETROGRAD_GRAPH_PASSES_REBATCH_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// The dimension that leads most of the values that are computed: the batch, or batch x tokens where
// only their product is seen. Dimensions are one where ops tie them; a reshape ties the outermost
// of what it splits or joins.
struct Rows {
  int64_t smallest = 0, largest = 0;  // extents that it has: 48 and, joined with tokens, 98304
};
absl::StatusOr<Rows> FindRows(const BackwardGraph& graph);

// Composites must have been expanded. Refuses, with the extent and the node, where an extent does
// not divide, or where something ties the dimension to a part that has to stay (a slice, a pad).
absl::StatusOr<BackwardGraph> RescaleRows(const BackwardGraph& graph, int64_t numerator,
                                          int64_t denominator);

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_PASSES_REBATCH_H_
