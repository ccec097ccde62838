// Makes every value that must lie in memory one that a kernel can put there. Stands before the
// search, because what it adds are ops like any other: they fuse with their neighbours.
//   - an output that is an input, a constant, a second mention of a value, or a view whose strides
//     no layout of its value can give, gets a copy of its own
//   - a library operand that is no strided matrix (a pad, a cut, a broadcast) gets a copy
//   - the source of a gather behind a view that cuts rows gets a copy
#ifndef RETROGRAD_FUSION_LOWER_LEGALIZE_H_
#define RETROGRAD_FUSION_LOWER_LEGALIZE_H_

#include "fusion/lower/layouts/layouts.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// A graph, and how its values lie: as AssignLayouts says.
struct LegalGraph {
  BackwardGraph graph;
  ValueLayouts layouts;
};

absl::StatusOr<LegalGraph> Legalize(const BackwardGraph& graph, const LayoutOptions& options = {});

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_LOWER_LEGALIZE_H_
