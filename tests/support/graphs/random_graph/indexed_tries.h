// Random ops that look elements up or put them where indices say. Each adds ops of its kind to the
// graph, or returns false where it finds no operands that fit.
#ifndef RETROGRAD_TESTS_SUPPORT_GRAPHS_RANDOM_GRAPH_INDEXED_TRIES_H_
#define RETROGRAD_TESTS_SUPPORT_GRAPHS_RANDOM_GRAPH_INDEXED_TRIES_H_

#include "tests/support/graphs/random_graph/growing_graph.h"

namespace retrograd {

bool TryIndexSelect(GrowingGraph& g);
bool TryGather(GrowingGraph& g);
bool TryIndexAdd(GrowingGraph& g);
bool TryScatterLines(GrowingGraph& g);
// Elements of a flat value at computed places: any strides, which may overlap.
bool TryStrided(GrowingGraph& g);

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_GRAPHS_RANDOM_GRAPH_INDEXED_TRIES_H_
