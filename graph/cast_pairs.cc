#include "graph/cast_pairs.h"

#include "graph/rounding.h"

namespace retrograd {
namespace {

// A result that jumps where its operand crosses a value: rounding before it decides the result.
bool IsDecision(const BackwardGraph& graph, const Use& use) {
  const OpInfo& info = Info(graph.op(use.user));
  switch (info.pattern) {
    case Pattern::kGather:
    case Pattern::kScatter: return use.operand == 1;
    case Pattern::kPointwise: break;
    default: return false;
  }
  if (info.type_rule == TypeRule::kSelect) return use.operand == 0;
  if (info.type_rule == TypeRule::kCast) return !IsFloat(graph.type(use.user).dtype);
  return info.type_rule == TypeRule::kCompare || info.op == Op::sign || info.op == Op::floor ||
         info.op == Op::fmod;
}

// By node: whether a comparison, mask or index lies anywhere behind it.
std::vector<bool> DecisionsDepend(const BackwardGraph& graph) {
  std::vector<bool> depends(graph.num_nodes());
  for (uint32_t i = static_cast<uint32_t>(graph.num_nodes()); i-- > 0;) {
    for (const Use& use : graph.uses(NodeId{i})) {
      if (!IsDecision(graph, use) && !depends[Index(use.user)]) continue;
      depends[i] = true;
      break;
    }
  }
  return depends;
}

// Whether every use of the node, through views, widens to at least `source`.
bool OnlyWidened(const BackwardGraph& graph, NodeId id, DType source,
                 const std::vector<bool>& is_output) {
  if (is_output[Index(id)] || graph.uses(id).empty()) return false;
  const DType narrow = graph.type(id).dtype;
  for (const Use& use : graph.uses(id)) {
    const Node& user = graph.node(use.user);
    if (user.op == Op::cast) {
      const DType to = user.results[0].dtype;
      if (!IsFloat(to) || SizeBytes(to) < SizeBytes(source)) return false;
      continue;
    }
    if (PatternOf(user.op) != Pattern::kView) return false;
    const double fill = user.attrs.Float("value");
    if (user.op == Op::pad && RoundTo(narrow, fill) != fill) return false;
    if (!OnlyWidened(graph, use.user, source, is_output)) return false;
  }
  return true;
}

}  // namespace

std::vector<bool> DroppableCasts(const BackwardGraph& graph) {
  const std::vector<bool> decisions = DecisionsDepend(graph);
  std::vector<bool> is_output(graph.num_nodes());
  for (const GraphOutput& output : graph.outputs()) {
    if (output.value.has_value()) is_output[Index(output.value->node)] = true;
  }
  std::vector<bool> droppable(graph.num_nodes());
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    const NodeId id{i};
    if (graph.op(id) != Op::cast || decisions[i]) continue;
    const DType from = graph.type(graph.operands(id)[0]).dtype, to = graph.type(id).dtype;
    if (!IsFloat(from) || !IsFloat(to) || SizeBytes(to) >= SizeBytes(from)) continue;
    droppable[i] = OnlyWidened(graph, id, from, is_output);
  }
  return droppable;
}

}  // namespace retrograd
