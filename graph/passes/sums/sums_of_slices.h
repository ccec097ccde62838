// Sums of slices that are slices of one sum.
#ifndef RETROGRAD_GRAPH_PASSES_SUMS_SUMS_OF_SLICES_H_
#define RETROGRAD_GRAPH_PASSES_SUMS_SUMS_OF_SLICES_H_

#include "absl/status/statusor.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// Where neighbouring slices of x are added each to the same place of y, x and y are added once, and
// the sums are slices of that: add(x[0:8], y[0:8]) and add(x[8:16], y[8:16]) are slices of
// add(x[0:16], y[0:16]). So are sums of such sums: what a layer hands back to a concat of all
// layers before it is added up for all of them at once, by the kernel that makes it. Each element
// has the sum that it had, to the bit. Pieces whose sum goes elsewhere are cut out of the whole:
// sums stay apart unless at least half of what they make is added up further.
absl::StatusOr<BackwardGraph> SumSlicesAtOnce(const BackwardGraph& graph);

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_PASSES_SUMS_SUMS_OF_SLICES_H_
