// Sums over one-hot rows without their zeros.
#ifndef RETROGRAD_GRAPH_ONE_HOT_H_
#define RETROGRAD_GRAPH_ONE_HOT_H_

#include "absl/status/statusor.h"
#include "graph/backward_graph.h"

namespace retrograd {

// A row is one-hot if it is where(e == iota, a, 0) for an e and an a of one value a row, times such values,
// cast, or cut off behind a column: the gradient of a loss that picks one class. Its sum along the row is
// a where e is a column, else 0; every other term is an exact zero, so that nothing is rounded otherwise
// than before. (Where a factor is not finite the sum was not a number, and is now the product with a.)
absl::StatusOr<BackwardGraph> SumOneHots(const BackwardGraph& graph);

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_ONE_HOT_H_
