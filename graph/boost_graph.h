// The storage of a BackwardGraph: a Boost.Graph adjacency_list and, beside it, what walks need in
// plain vectors. The one header that includes Boost; include it only in a .cc file that runs a
// Boost.Graph algorithm (it costs a translation unit 1.6 s).
#ifndef RETROGRAD_GRAPH_BOOST_GRAPH_H_
#define RETROGRAD_GRAPH_BOOST_GRAPH_H_

#include <boost/graph/adjacency_list.hpp>
#include <string>
#include <vector>

#include "graph/backward_graph.h"

namespace retrograd {

// From a producer to a user: result number `result` is its operand number `operand`.
struct OperandEdge {
  uint32_t result = 0;
  uint32_t operand = 0;
};

// vecS for the vertices: a descriptor is the node's id.
using Adjacency =
    boost::adjacency_list<boost::vecS, boost::vecS, boost::bidirectionalS, Node, OperandEdge>;

struct GraphStorage {
  std::string name;
  Adjacency adjacency;
  // Operands of node i are operands[operand_begin[i] .. operand_begin[i + 1]); uses likewise.
  std::vector<uint32_t> operand_begin;
  std::vector<ValueId> operands;
  std::vector<uint32_t> use_begin;
  std::vector<Use> uses;
  std::vector<uint32_t> value_begin;  // dense number of node i's first result; one more at the end
  std::vector<GraphOutput> outputs;
  std::vector<Origin> origins;
  Numerics numerics;
};

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_BOOST_GRAPH_H_
