// Random pointwise ops. Each adds ops of its kind to the graph, or returns false where it finds no
// operands that fit.
#ifndef RETROGRAD_TESTS_SUPPORT_GRAPHS_RANDOM_GRAPH_POINTWISE_TRIES_H_
#define RETROGRAD_TESTS_SUPPORT_GRAPHS_RANDOM_GRAPH_POINTWISE_TRIES_H_

#include "tests/support/graphs/random_graph/growing_graph.h"

namespace retrograd {

bool TryUnary(GrowingGraph& g);
bool TryBinary(GrowingGraph& g);
bool TrySelect(GrowingGraph& g);
bool TryFma(GrowingGraph& g);
bool TryConstant(GrowingGraph& g);
bool TryCast(GrowingGraph& g);

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_GRAPHS_RANDOM_GRAPH_POINTWISE_TRIES_H_
