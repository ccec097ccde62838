// Random edits of a graph that keep it legal, so that fuzzing reaches planning: another op, shape,
// attribute or edge, a node more or less, a range of nodes twice, stages of a transform. What an
// edit makes illegal further down is mended: a cast is put in, or the node is left out and its
// users read what it read.
#ifndef RETROGRAD_TESTS_SUPPORT_GRAPHS_MUTATION_GRAPH_MUTATION_H_
#define RETROGRAD_TESTS_SUPPORT_GRAPHS_MUTATION_GRAPH_MUTATION_H_

#include <random>

#include "graph/ir/backward_graph.h"

namespace retrograd {

// The graph after one to three edits. It has at least one node; it may be the same graph.
BackwardGraph MutateGraph(const BackwardGraph& graph, std::mt19937& rng);

// A graph of a single input, to begin with.
BackwardGraph SmallestGraph();

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_GRAPHS_MUTATION_GRAPH_MUTATION_H_
