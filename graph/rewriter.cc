#include "graph/rewriter.h"

#include "graph/status.h"

namespace retrograd {

Rewriter::Rewriter(const BackwardGraph& graph)
    : graph_(graph), builder_(graph.name()), new_(graph.num_values()) {
  builder_.SetNumerics(graph.numerics());
  builder_.Reserve(graph.num_nodes());
  for (const Origin& origin : graph.origins()) builder_.AddOrigin(origin);
}

ValueId Rewriter::New(ValueId old) const {
  const std::optional<ValueId>& value = new_[graph_.value_index(old)];
  RG_CHECK(value.has_value());
  return *value;
}

std::vector<ValueId> Rewriter::NewOperands(NodeId id) const {
  std::vector<ValueId> operands;
  operands.reserve(graph_.operands(id).size());
  for (ValueId v : graph_.operands(id)) operands.push_back(New(v));
  return operands;
}

void Rewriter::Copy(NodeId id) {
  const Node& node = graph_.node(id);
  UseOrigin(id);
  const ValueId first = node.input != nullptr ? builder_.Input(node.results[0], *node.input)
                                              : builder_.Add(node.op, NewOperands(id), node.attrs);
  for (uint32_t r = 0; r < node.results.size(); ++r) Set({id, r}, {first.node, r});
}

absl::StatusOr<BackwardGraph> Rewriter::Finish() {
  for (const GraphOutput& output : graph_.outputs()) {
    if (output.value.has_value()) {
      builder_.Output(New(*output.value), output.name, output.strides);
    } else {
      builder_.AbsentOutput(output.name);
    }
  }
  return builder_.Build();
}

}  // namespace retrograd
