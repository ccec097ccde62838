// Which narrowing casts simplification may drop, see SimplifyOptions.
#ifndef RETROGRAD_GRAPH_PASSES_CAST_PAIRS_H_
#define RETROGRAD_GRAPH_PASSES_CAST_PAIRS_H_

#include <vector>

#include "graph/ir/backward_graph.h"

namespace retrograd {

// The casts that can be left out, ascending.
std::vector<NodeId> DroppableCasts(const BackwardGraph& graph);

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_PASSES_CAST_PAIRS_H_
