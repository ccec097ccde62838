// A graph with all its floating values in fp64: run through the generated kernels it must agree
// with the evaluator to 1e-10, so that no dataflow mistake hides in a tolerance for bf16.
#ifndef RETROGRAD_GRAPH_RETYPE_H_
#define RETROGRAD_GRAPH_RETYPE_H_

#include "absl/status/statusor.h"
#include "graph/backward_graph.h"

namespace retrograd {

// The same nodes, ids, outputs and strides; casts between floating dtypes become casts of fp64 to
// itself, which simplification drops.
absl::StatusOr<BackwardGraph> RetypeToFloat64(const BackwardGraph& graph);

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_RETYPE_H_
