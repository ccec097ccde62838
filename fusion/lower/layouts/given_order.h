// Which elementwise values an order is given to by a tensor that they read.
#ifndef RETROGRAD_FUSION_LOWER_LAYOUTS_GIVEN_ORDER_H_
#define RETROGRAD_FUSION_LOWER_LAYOUTS_GIVEN_ORDER_H_

#include <vector>

#include "graph/ir/backward_graph.h"

namespace retrograd {

// By value_index: elementwise values that no tensor as large as they are is read for, as
// comparisons of positions and products of a row and a column. A kernel makes them in one order as
// well as in another.
std::vector<bool> ValuesOfNoOrder(const BackwardGraph& graph);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_LOWER_LAYOUTS_GIVEN_ORDER_H_
