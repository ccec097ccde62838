#include "graph/passes/cast_pairs.h"

#include <algorithm>
#include <limits>

#include "graph/base/rounding.h"

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
  if (info.type_rule == TypeRule::kCast) {
    const DType to = graph.type(use.user).dtype;
    return !IsFloat(to) || IsFp8(to);  // few codes: a quantiser's results are told apart by them
  }
  return info.type_rule == TypeRule::kCompare || info.op == Op::sign || info.op == Op::floor ||
         info.op == Op::floor_pow2 || info.op == Op::fmod;
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

// By node: the size in bytes of the narrowest dtype that any use, through views, widens it to; 0
// where some use is no widening, where it is an output and where nothing uses it.
std::vector<int8_t> NarrowestWidening(const BackwardGraph& graph) {
  std::vector<bool> is_output(graph.num_nodes());
  for (const GraphOutput& output : graph.outputs()) {
    if (output.value.has_value()) is_output[Index(output.value->node)] = true;
  }
  std::vector<int8_t> narrowest(graph.num_nodes());
  const auto through = [&](const Use& use, DType dtype) -> int8_t {
    const Node& user = graph.node(use.user);
    if (user.op == Op::cast) {
      const DType to = user.results[0].dtype;
      return IsFloat(to) ? static_cast<int8_t>(SizeBytes(to)) : 0;
    }
    if (PatternOf(user.op) != Pattern::kView) return 0;
    if (user.op == Op::pad) {
      const double fill = user.attrs.Float("value");
      if (RoundTo(dtype, fill) != fill) return 0;
    }
    return narrowest[Index(use.user)];
  };
  for (uint32_t i = static_cast<uint32_t>(graph.num_nodes()); i-- > 0;) {
    const absl::Span<const Use> uses = graph.uses(NodeId{i});
    if (is_output[i] || uses.empty()) continue;
    const DType dtype = graph.type(NodeId{i}).dtype;
    int8_t least = std::numeric_limits<int8_t>::max();
    for (const Use& use : uses) {
      if (least != 0) least = std::min(least, through(use, dtype));
    }
    narrowest[i] = least;
  }
  return narrowest;
}

}  // namespace

std::vector<NodeId> DroppableCasts(const BackwardGraph& graph) {
  std::vector<NodeId> narrowing;
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    const NodeId id{i};
    if (graph.op(id) != Op::cast) continue;
    const DType from = graph.type(graph.operands(id)[0]).dtype, to = graph.type(id).dtype;
    if (!IsFloat(from) || !IsFloat(to) || IsFp8(to)) continue;
    if (SizeBytes(to) < SizeBytes(from)) narrowing.push_back(id);
  }
  if (narrowing.empty()) return {};
  const std::vector<bool> decisions = DecisionsDepend(graph);
  const std::vector<int8_t> widened = NarrowestWidening(graph);
  std::erase_if(narrowing, [&](NodeId id) {
    const DType from = graph.type(graph.operands(id)[0]).dtype;
    return decisions[Index(id)] || widened[Index(id)] < SizeBytes(from);
  });
  return narrowing;
}

}  // namespace retrograd
