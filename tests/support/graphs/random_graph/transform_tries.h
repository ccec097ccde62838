// Maps stacked on each other, each of which reads an operand at two places, so that what the last
// one needs of the first doubles with each. Each adds ops of its kind to the graph, or returns
// false where it finds no operand that is large enough.
#ifndef RETROGRAD_TESTS_SUPPORT_GRAPHS_RANDOM_GRAPH_TRANSFORM_TRIES_H_
#define RETROGRAD_TESTS_SUPPORT_GRAPHS_RANDOM_GRAPH_TRANSFORM_TRIES_H_

#include "tests/support/graphs/random_graph/growing_graph.h"

namespace retrograd {

// Stages of a fast transform (sums and differences) or of a sorting network (minima and maxima).
bool TryTransform(GrowingGraph& g);
// x = x * permute(x), again and again.
bool TryPermutedProducts(GrowingGraph& g);

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_GRAPHS_RANDOM_GRAPH_TRANSFORM_TRIES_H_
