// A graph with its floating values in other dtypes. In fp64, run through the generated kernels, it
// must agree with the evaluator to 1e-10, so that no dataflow mistake hides in a tolerance for
// bf16; in fp32 or bf16 it tells what a plan would be.
#ifndef RETROGRAD_GRAPH_PASSES_RETYPE_H_
#define RETROGRAD_GRAPH_PASSES_RETYPE_H_

#include "absl/status/statusor.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// The same nodes, ids, outputs and strides, with `to` for every floating dtype but fp8: what is
// quantised stays so, since another rounding would be another gradient. Casts between the others
// become casts of `to` to itself, which simplification drops. An op that takes no such dtype (a
// log-sum-exp in bf16) is an error.
absl::StatusOr<BackwardGraph> RetypeFloats(const BackwardGraph& graph, DType to);
absl::StatusOr<BackwardGraph> RetypeToFloat64(const BackwardGraph& graph);

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_PASSES_RETYPE_H_
