// Random edits of a graph message that know its fields but none of its rules: the way to files that
// are wrong in one place.
#ifndef RETROGRAD_TESTS_SUPPORT_GRAPHS_MUTATION_MESSAGE_MUTATION_H_
#define RETROGRAD_TESTS_SUPPORT_GRAPHS_MUTATION_MESSAGE_MUTATION_H_

#include <random>

#include "graph/proto/graph.pb.h"

namespace retrograd {

// Sets, clears, repeats, moves or removes one field anywhere in the message.
void MutateMessage(v1::Graph& graph, std::mt19937& rng);

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_GRAPHS_MUTATION_MESSAGE_MUTATION_H_
