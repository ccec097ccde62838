// Random ops that put values side by side or on top of each other. Each adds ops of its kind to the
// graph, or returns false where it finds no operands that fit.
#ifndef RETROGRAD_TESTS_SUPPORT_GRAPHS_RANDOM_GRAPH_JOIN_TRIES_H_
#define RETROGRAD_TESTS_SUPPORT_GRAPHS_RANDOM_GRAPH_JOIN_TRIES_H_

#include "tests/support/graphs/random_graph/growing_graph.h"

namespace retrograd {

bool TryCat(GrowingGraph& g);
bool TrySliceScatter(GrowingGraph& g);
bool TryAccumulate(GrowingGraph& g);

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_GRAPHS_RANDOM_GRAPH_JOIN_TRIES_H_
