// Inputs for runs whose values do not matter: to see times where nothing was recorded.
#ifndef RETROGRAD_TOOLS_EXECUTE_RANDOM_INPUTS_H_
#define RETROGRAD_TOOLS_EXECUTE_RANDOM_INPUTS_H_

#include <cstdint>
#include <string>

#include "graph/ir/backward_graph.h"

namespace retrograd {

// Bytes to be repeated through the memory of an input: floats between -1 and 1, and integers that
// are indices of whatever the input indexes, or the ends of even groups.
std::string RandomPattern(const BackwardGraph& graph, NodeId input, uint64_t seed);

// The integers of such an input are at least 0 and below this: the extent that they index, or 2.
int64_t IntegerLimit(const BackwardGraph& graph, NodeId input);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_EXECUTE_RANDOM_INPUTS_H_
