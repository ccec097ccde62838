// Sums at indices that are added to another gradient begin with it: where one table both embeds a
// model's tokens and makes its predictions, its gradient is a product and a sum at the tokens. The
// sum's kernel reads the product and writes the gradient, and no table of sums is written and read.
#ifndef RETROGRAD_FUSION_LOWER_INDEXED_BASED_SUMS_H_
#define RETROGRAD_FUSION_LOWER_INDEXED_BASED_SUMS_H_

#include "absl/status/statusor.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// A gradient that is an accumulate of two terms, a segment_add onto zeros and, made before it, what
// lies in memory anyway (a library call's result, an input or another such sum), becomes a
// segment_add onto that, which may be narrower. Each element is rounded once. What ops of the
// backward read further stays: they may share the accumulate's kernel. Stands behind SortIndices.
absl::StatusOr<BackwardGraph> SumOntoBases(const BackwardGraph& graph);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_LOWER_INDEXED_BASED_SUMS_H_
