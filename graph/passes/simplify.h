// The algebra that every graph goes through: what computes nothing goes, equal nodes become one.
// Stands after expansion, so that equal pieces of different composites merge, and again after the
// accumulates are ordered, whose rewriting leaves identities behind.
//
// Afterwards: every node but the inputs reaches an output; no two nodes have equal ops, operands
// and attributes (copies excepted, whose storage is the point); no view, cast or arithmetic with a
// neutral constant is an identity; no reshape reads a reshape and no permute a permute. Inputs and
// outputs are the same in number, order, types and values, but for rounding: see cast_pairs.
#ifndef RETROGRAD_GRAPH_PASSES_SIMPLIFY_H_
#define RETROGRAD_GRAPH_PASSES_SIMPLIFY_H_

#include "absl/status/statusor.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

struct SimplifyOptions {
  // Drop a narrowing cast whose every use, through views, is a widening back to at least the
  // dtype that it came from, unless a comparison, a mask or an index depends on it. Rounding is
  // dropped, never added or moved.
  bool cast_pairs = true;
};

absl::StatusOr<BackwardGraph> Simplify(const BackwardGraph& graph,
                                       const SimplifyOptions& options = {});

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_PASSES_SIMPLIFY_H_
