// A graph that is being edited: it may be illegal anywhere.
#ifndef RETROGRAD_TESTS_SUPPORT_GRAPHS_MUTATION_GRAPH_DRAFT_H_
#define RETROGRAD_TESTS_SUPPORT_GRAPHS_MUTATION_GRAPH_DRAFT_H_

#include <vector>

#include "graph/ir/backward_graph.h"

namespace retrograd {

// A node that may still be illegal. Operands number the draft's own nodes.
struct DraftNode {
  Op op = Op::input;
  std::vector<ValueId> operands;
  Attrs attrs;
  TensorType type;  // inputs: as given. Others: of the first result when the draft was made
  InputInfo input;
  int origin = -1;
};

struct Draft {
  std::vector<DraftNode> nodes;
  std::vector<GraphOutput> outputs;
};

Draft DraftOf(const BackwardGraph& graph);

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_GRAPHS_MUTATION_GRAPH_DRAFT_H_
