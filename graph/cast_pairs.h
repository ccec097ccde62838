// Which narrowing casts simplification may drop, see SimplifyOptions.
#ifndef RETROGRAD_GRAPH_CAST_PAIRS_H_
#define RETROGRAD_GRAPH_CAST_PAIRS_H_

#include <vector>

#include "graph/backward_graph.h"

namespace retrograd {

// By node id: true for the casts that can be left out.
std::vector<bool> DroppableCasts(const BackwardGraph& graph);

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_CAST_PAIRS_H_
