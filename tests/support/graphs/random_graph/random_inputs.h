// Random values for the inputs of a graph.
#ifndef RETROGRAD_TESTS_SUPPORT_GRAPHS_RANDOM_GRAPH_RANDOM_INPUTS_H_
#define RETROGRAD_TESTS_SUPPORT_GRAPHS_RANDOM_GRAPH_RANDOM_INPUTS_H_

#include <cstdint>
#include <vector>

#include "graph/ir/backward_graph.h"
#include "graph/reference/reference.h"

namespace retrograd {

// Values for the graph's inputs, in the order of InputNodes: floats in [-2, 2] that their dtype can
// hold, integers that are legal indices of every axis on which the graph uses them.
std::vector<Values> RandomInputs(const BackwardGraph& graph, uint32_t seed);

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_GRAPHS_RANDOM_GRAPH_RANDOM_INPUTS_H_
