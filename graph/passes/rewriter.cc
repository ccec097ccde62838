#include "graph/passes/rewriter.h"

#include "graph/base/status.h"

namespace retrograd {

Rewriter::Rewriter(const BackwardGraph& graph)
    : graph_(graph), builder_(graph.name()), new_(graph.num_values()) {
  builder_.SetNumerics(graph.numerics());
  builder_.Reserve(graph.num_nodes(), graph.num_operands());
  builder_.ShareOrigins(graph);
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
  operands_.clear();
  for (ValueId v : graph_.operands(id)) operands_.push_back(New(v));
  CopyOver(id, operands_);
}

void Rewriter::CopyOver(NodeId id, absl::Span<const ValueId> operands) {
  const Node& node = graph_.node(id);
  const NodeId copy = TypesAreOld(id, operands)
                          ? builder_.AddShared(graph_.shared_node(id), operands)
                          : AddAnew(id, operands);
  for (uint32_t r = 0; r < node.results.size(); ++r) Set({id, r}, {copy, r});
}

NodeId Rewriter::AddAnew(NodeId id, absl::Span<const ValueId> operands) {
  const Node& node = graph_.node(id);
  UseOrigin(id);
  return builder_.Add(node.op, operands, node.attrs).node;
}

// Whether the new operands have the types that the old ones had; a shared type is seen at once.
bool Rewriter::TypesAreOld(NodeId id, absl::Span<const ValueId> operands) const {
  const absl::Span<const ValueId> old = graph_.operands(id);
  for (size_t i = 0; i < operands.size(); ++i) {
    const TensorType& now = builder_.type(operands[i]);
    const TensorType& then = graph_.type(old[i]);
    if (&now != &then && now != then) return false;
  }
  return true;
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
