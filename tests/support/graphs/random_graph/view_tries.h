// Random views. Each adds ops of its kind to the graph, or returns false where it finds no operands
// that fit.
#ifndef RETROGRAD_TESTS_SUPPORT_GRAPHS_RANDOM_GRAPH_VIEW_TRIES_H_
#define RETROGRAD_TESTS_SUPPORT_GRAPHS_RANDOM_GRAPH_VIEW_TRIES_H_

#include "tests/support/graphs/random_graph/growing_graph.h"

namespace retrograd {

bool TryReshape(GrowingGraph& g);
bool TryPermute(GrowingGraph& g);
bool TryExpand(GrowingGraph& g);
bool TrySlice(GrowingGraph& g);
bool TryFlip(GrowingGraph& g);
bool TryPad(GrowingGraph& g);

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_GRAPHS_RANDOM_GRAPH_VIEW_TRIES_H_
