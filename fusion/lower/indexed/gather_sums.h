// Sums at indices that are known when the plan is made.
#ifndef RETROGRAD_FUSION_LOWER_INDEXED_GATHER_SUMS_H_
#define RETROGRAD_FUSION_LOWER_INDEXED_GATHER_SUMS_H_

#include "absl/status/statusor.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// index_add whose index depends on constants alone becomes a sum of views of its source: each row
// gathers what is added to it. Such an index is a few straight lines where an image is resampled,
// windows overlap, or every n-th row is taken. A line is a slice of the source, padded to the rows
// that it names. Along an axis each row adds its terms in the order of their places, as index_add
// does; axes of the table that other axes of the index decide are summed one after the other. The
// sum is rounded once. Where it takes too many terms, or an index is not known, index_add stays.
absl::StatusOr<BackwardGraph> GatherKnownSums(const BackwardGraph& graph);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_LOWER_INDEXED_GATHER_SUMS_H_
