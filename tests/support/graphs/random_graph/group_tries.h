// Random ops over groups of neighbours, whose ends are data. Each adds ops of its kind to the
// graph, or returns false where it finds no operands that fit.
#ifndef RETROGRAD_TESTS_SUPPORT_GRAPHS_RANDOM_GRAPH_GROUP_TRIES_H_
#define RETROGRAD_TESTS_SUPPORT_GRAPHS_RANDOM_GRAPH_GROUP_TRIES_H_

#include "tests/support/graphs/random_graph/growing_graph.h"

namespace retrograd {

// Rows in groups or sums in groups, with and without scales. Inputs say where groups end, in any
// order: some are empty, and places lie behind the last.
bool TryGroupedMatMul(GrowingGraph& g);
// Of magnitudes with ends as above; of the elements themselves no group is empty, since that has
// no finite largest one.
bool TrySegmentAmax(GrowingGraph& g);

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_GRAPHS_RANDOM_GRAPH_GROUP_TRIES_H_
