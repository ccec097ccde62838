// Sums whose terms are zero but for one index.
#ifndef RETROGRAD_GRAPH_PASSES_SUMS_ONE_HOT_SUMS_H_
#define RETROGRAD_GRAPH_PASSES_SUMS_ONE_HOT_SUMS_H_

#include "absl/status/statusor.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// The gradient of a cross entropy is one number a row: where(index == iota, value, 0), times
// factors of the row. Its sum along the row is that number, if the index is one of the row's, and
// nothing needs to be read for it. Exact for finite values; a factor of infinity gives infinity
// where the zeros beside it gave NaN.
absl::StatusOr<BackwardGraph> TakeOneHotSums(const BackwardGraph& graph);

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_PASSES_SUMS_ONE_HOT_SUMS_H_
