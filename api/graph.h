// What several files of the C interface make of graphs.
#ifndef RETROGRAD_API_GRAPH_H_
#define RETROGRAD_API_GRAPH_H_

#include <cstdint>
#include <vector>

#include "graph/ir/backward_graph.h"
#include "include/retrograd/retrograd.h"

namespace retrograd {

// Without a name and a kind. strides: empty: row-major.
rg_tensor TensorOf(const TensorType& type, const std::vector<int64_t>& strides);

// A handle of the graph.
rg_graph* NewGraph(BackwardGraph graph);

}  // namespace retrograd

#endif  // RETROGRAD_API_GRAPH_H_
