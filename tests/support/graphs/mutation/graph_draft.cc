#include "tests/support/graphs/mutation/graph_draft.h"

namespace retrograd {
Draft DraftOf(const BackwardGraph& g) {
  Draft d;
  for (uint32_t i = 0; i < g.num_nodes(); ++i) {
    const Node& n = g.node(NodeId{i});
    DraftNode node{.op = n.op,
                   .operands = {},
                   .attrs = n.attrs,
                   .type = n.results[0],
                   .input = {},
                   .origin = n.origin};
    const auto operands = g.operands(NodeId{i});
    node.operands.assign(operands.begin(), operands.end());
    if (n.input != nullptr) node.input = *n.input;
    d.nodes.push_back(std::move(node));
  }
  d.outputs.assign(g.outputs().begin(), g.outputs().end());
  return d;
}

}  // namespace retrograd
