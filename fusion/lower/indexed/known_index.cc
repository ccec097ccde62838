#include "fusion/lower/indexed/known_index.h"

#include <algorithm>
#include <map>

#include "graph/reference/reference.h"

namespace retrograd {
namespace {

// Whether every compiler gives the same bits, but for products that meet their sums unrounded.
// Division in fp32 may be that of a reciprocal; in fp64, where remainders of integers are found, it
// is IEEE 754's.
bool IsExact(const BackwardGraph& graph, NodeId id) {
  if (graph.pattern(id) == Pattern::kView) return true;
  if (graph.op(id) == Op::div) return graph.type(id).dtype == DType::kFp64;
  switch (graph.op(id)) {
    case Op::full:
    case Op::iota:
    case Op::add:
    case Op::sub:
    case Op::mul:
    case Op::neg:
    case Op::abs:
    case Op::sign:
    case Op::maximum:
    case Op::minimum:
    case Op::relu:
    case Op::floor:
    case Op::copy:
    case Op::eq:
    case Op::ne:
    case Op::lt:
    case Op::le:
    case Op::gt:
    case Op::ge:
    case Op::logical_and:
    case Op::logical_or:
    case Op::logical_not:
    case Op::where:
    case Op::cat:
    case Op::cast: return true;
    default: return false;
  }
}

// The nodes in front of a value, ascending, whose elements are taken from the budget; nothing where
// one of them is not exact, or where they have more elements than it.
std::optional<std::vector<NodeId>> Ancestors(const BackwardGraph& graph, ValueId value,
                                             int64_t& budget) {
  std::map<uint32_t, bool> seen;
  std::vector<NodeId> open = {value.node}, found;
  int64_t left = budget;
  while (!open.empty()) {
    const NodeId id = open.back();
    open.pop_back();
    if (seen[Index(id)]) continue;
    seen[Index(id)] = true;
    if (!IsExact(graph, id)) return std::nullopt;
    left -= graph.type(id).elements();
    if (left < 0) return std::nullopt;
    found.push_back(id);
    for (const ValueId operand : graph.operands(id)) open.push_back(operand.node);
  }
  budget = left;
  std::sort(found.begin(), found.end(), [](NodeId a, NodeId b) { return Index(a) < Index(b); });
  return found;
}

absl::StatusOr<BackwardGraph> Part(const BackwardGraph& graph, const std::vector<NodeId>& nodes,
                                   ValueId value) {
  GraphBuilder builder;
  std::map<uint32_t, ValueId> made;
  for (const NodeId id : nodes) {
    std::vector<ValueId> operands;
    for (const ValueId operand : graph.operands(id)) {
      operands.push_back(made.at(Index(operand.node)));
    }
    made[Index(id)] = builder.Add(graph.op(id), operands, graph.node(id).attrs);
  }
  builder.Output(made.at(Index(value.node)), "index");
  return builder.Build();
}

// By value: whether it is rounded where a compiler rounds as little as it may.
std::vector<bool> RoundedAtLeast(const BackwardGraph& graph) {
  std::vector<bool> rounded;
  for (uint32_t i = 0; i < graph.num_nodes(); ++i)
    rounded.push_back(graph.op(NodeId{i}) != Op::mul);
  return rounded;
}

}  // namespace

std::optional<std::vector<int64_t>> KnownIndex(const BackwardGraph& graph, ValueId index) {
  int64_t budget = kMostEvaluated;
  return KnownIndex(graph, index, budget);
}

std::optional<std::vector<int64_t>> KnownIndex(const BackwardGraph& graph, ValueId index,
                                               int64_t& budget) {
  const std::optional<std::vector<NodeId>> nodes = Ancestors(graph, index, budget);
  if (!nodes.has_value()) return std::nullopt;
  const absl::StatusOr<BackwardGraph> part = Part(graph, *nodes, index);
  if (!part.ok()) return std::nullopt;
  const size_t result = part->value_index(*part->outputs()[0].value);
  const auto rounded = Evaluate(*part, {}, {.mode = ReferenceOptions::kRoundEveryOp});
  const auto contracted = Evaluate(
      *part, {}, {.mode = ReferenceOptions::kRoundGiven, .rounded = RoundedAtLeast(*part)});
  if (!rounded.ok() || !contracted.ok()) return std::nullopt;
  const Values& values = (*rounded)[result];
  if (values != (*contracted)[result]) return std::nullopt;
  return std::vector<int64_t>(values.begin(), values.end());
}

}  // namespace retrograd
