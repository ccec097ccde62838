// Random legal graphs for property tests: every pattern and library op but attention, and no
// composites, small odd and even extents, values that stay tame. Print the seed when a property
// fails: the same seed and options give the same graph anywhere.
#ifndef RETROGRAD_TESTS_SUPPORT_GRAPHS_RANDOM_GRAPH_H_
#define RETROGRAD_TESTS_SUPPORT_GRAPHS_RANDOM_GRAPH_H_

#include <cstdint>

#include "graph/ir/backward_graph.h"
#include "tests/support/graphs/random_graph/random_graph_options.h"
#include "tests/support/graphs/random_graph/random_inputs.h"

namespace retrograd {

BackwardGraph RandomGraph(uint32_t seed, const RandomGraphOptions& options = {});

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_GRAPHS_RANDOM_GRAPH_H_
