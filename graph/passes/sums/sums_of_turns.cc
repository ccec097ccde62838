#include "graph/passes/sums/sums_of_turns.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "graph/passes/rewriter.h"

namespace retrograd {
namespace {

bool IsZero(const BackwardGraph& g, ValueId v) {
  return g.op(v.node) == Op::full && g.node(v.node).attrs.Float("value") == 0;
}

// A value at every `step`-th place of an axis, from the place `start` below the step on, and zeros
// elsewhere.
struct Turn {
  int64_t axis = 0, step = 0, start = 0;
  ValueId value;
};

std::optional<Turn> TurnOf(const BackwardGraph& g, ValueId v) {
  if (g.op(v.node) != Op::slice_scatter) return std::nullopt;
  const auto operands = g.operands(v.node);
  const Attrs& attrs = g.node(v.node).attrs;
  const Turn turn{.axis = attrs.Int("axis"),
                  .step = attrs.Int("step", 1),
                  .start = attrs.Int("start"),
                  .value = operands[1]};
  const int64_t extent = g.type(v).shape[turn.axis];
  const bool fills = turn.step > 1 && turn.start < turn.step && extent % turn.step == 0 &&
                     g.type(turn.value).shape[turn.axis] == extent / turn.step;
  const bool last = turn.axis + 1 == static_cast<int64_t>(g.type(v).shape.size());
  if (!fills || last || !IsZero(g, operands[0])) return std::nullopt;
  return turn;
}

// How the terms of a sum take turns: one value for each turn of the axis, or a sum of values that
// take turns along another axis.
struct Turns {
  int64_t axis = 0;
  std::optional<ValueId> value;  // of one term; else `parts`
  std::vector<Turns> parts;
};

std::optional<Turns> TurnsOf(const BackwardGraph& g, const std::vector<ValueId>& terms) {
  std::map<int64_t, std::vector<ValueId>> by_start;
  std::optional<Turn> first;
  for (const ValueId term : terms) {
    const std::optional<Turn> turn = TurnOf(g, term);
    if (!turn.has_value()) return std::nullopt;
    if (!first.has_value()) first = turn;
    if (turn->axis != first->axis || turn->step != first->step) return std::nullopt;
    by_start[turn->start].push_back(turn->value);
  }
  if (!first.has_value() || static_cast<int64_t>(by_start.size()) != first->step) {
    return std::nullopt;
  }
  Turns turns{.axis = first->axis};
  for (const auto& [_, values] : by_start) {
    if (values.size() == 1) {
      turns.parts.push_back({.value = values[0]});
      continue;
    }
    std::optional<Turns> part = TurnsOf(g, values);
    if (!part.has_value()) return std::nullopt;
    turns.parts.push_back(*std::move(part));
  }
  return turns;
}

// Of an accumulate of whole terms alone.
std::optional<Turns> TurnsOf(const BackwardGraph& g, NodeId id) {
  // A stack has one dim more than its parts.
  if (g.op(id) != Op::accumulate || g.type(id).rank() >= kMaxRank) return std::nullopt;
  const absl::Span<const ValueId> operands = g.operands(id);
  const bool whole = std::all_of(operands.begin(), operands.end(), [&](ValueId v) {
    return g.type(v).shape == g.type(id).shape && g.type(v).dtype == g.type(id).dtype;
  });
  if (!whole) return std::nullopt;
  return TurnsOf(g, std::vector<ValueId>(operands.begin(), operands.end()));
}

ValueId Stack(const Turns& turns, Rewriter& rewriter) {
  if (turns.value.has_value()) return rewriter.New(*turns.value);
  GraphBuilder& b = rewriter.builder();
  std::vector<ValueId> parts;
  Shape shape;
  for (const Turns& part : turns.parts) {
    const ValueId value = Stack(part, rewriter);
    shape = b.type(value).shape;
    Shape lifted = shape;
    lifted.insert(lifted.begin() + static_cast<std::ptrdiff_t>(turns.axis) + 1, 1);
    parts.push_back(b.Reshape(value, std::move(lifted)));
  }
  const ValueId joined = b.Cat(parts, turns.axis + 1);
  shape[turns.axis] *= static_cast<int64_t>(parts.size());
  return b.Reshape(joined, std::move(shape));
}

}  // namespace

absl::StatusOr<BackwardGraph> StackTurns(const BackwardGraph& graph) {
  std::vector<std::optional<Turns>> turns(graph.num_nodes());
  bool any = false;
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    turns[i] = TurnsOf(graph, NodeId{i});
    any |= turns[i].has_value();
  }
  if (!any) return graph;
  Rewriter rewriter(graph);
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    const NodeId id{i};
    if (!turns[i].has_value()) {
      rewriter.Copy(id);
      continue;
    }
    rewriter.UseOrigin(id);
    rewriter.Set({id, 0}, Stack(*turns[i], rewriter));
  }
  return rewriter.Finish();
}

}  // namespace retrograd
