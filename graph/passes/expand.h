// Composite ops become primitives. First of the passes, so that every later stage sees only
// primitives; each primitive keeps the composite's origin, or one that names the composite, so
// that dumps and explanations still speak of "rms_norm_backward".
#ifndef RETROGRAD_GRAPH_PASSES_EXPAND_H_
#define RETROGRAD_GRAPH_PASSES_EXPAND_H_

#include "absl/status/statusor.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// Afterwards no node's pattern is kComposite; inputs, outputs and all values that outputs name are
// as before. Composites without an origin get one with the composite's name, numbered from 0 in
// id order.
absl::StatusOr<BackwardGraph> ExpandComposites(const BackwardGraph& graph);

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_PASSES_EXPAND_H_
