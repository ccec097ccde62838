#include "fusion/lower/wide_joins.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "fusion/analysis/consumers.h"
#include "fusion/cost/pass_price.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/lower/concat_in_place.h"
#include "graph/base/status.h"
#include "graph/passes/rewriter.h"

namespace retrograd {
namespace {

constexpr int64_t kInstructionsOfPart = 2;  // a guarded load, and a choice or a sum
// Numbers of parts that are tried grow by an eighth.
constexpr int64_t kStepOfTries = 8;

// Parts in the order in which they stand along an axis.
struct Join {
  int64_t axis = 0;
  std::vector<ValueId> parts;
};

// The axis along which each part of an accumulate is shorter than the result; nullopt: several.
std::optional<int64_t> AxisOfParts(const Shape& whole, const Shape& part) {
  std::optional<int64_t> axis;
  for (size_t d = 0; d < whole.size(); ++d) {
    if (part[d] == whole[d]) continue;
    if (axis) return std::nullopt;
    axis = static_cast<int64_t>(d);
  }
  return axis;
}

// An accumulate whose parts fill an axis side by side.
std::optional<Join> JoinOfSum(const BackwardGraph& g, NodeId id) {
  const Shape& whole = g.type(id).shape;
  const auto operands = g.operands(id);
  const std::optional<int64_t> axis = AxisOfParts(whole, g.type(operands[0]).shape);
  if (!axis) return std::nullopt;
  const auto starts = g.node(id).attrs.Ints("starts");
  std::vector<std::pair<int64_t, ValueId>> placed;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (AxisOfParts(whole, g.type(operands[i]).shape) != axis) return std::nullopt;
    placed.emplace_back(starts[i * whole.size() + *axis], operands[i]);
  }
  std::sort(placed.begin(), placed.end());
  Join join{.axis = *axis};
  int64_t filled = 0;
  for (const auto& [start, part] : placed) {
    if (start != filled) return std::nullopt;
    filled += g.type(part).shape[*axis];
    join.parts.push_back(part);
  }
  return filled == whole[*axis] ? std::optional(std::move(join)) : std::nullopt;
}

// What it takes to join so many parts to the whole, `each` by a kernel, then what these make, and
// so on. Kernels of one step share its work, and have a launch each.
int64_t JoinPs(const TensorType& whole, int64_t parts, int64_t each, const DeviceSpec& device) {
  const int64_t bytes = Product({2, whole.size_bytes()});
  int64_t ps = 0;
  while (parts > 1) {
    const int64_t joins = CeilDiv(parts, each);
    const int64_t looked_at = std::min(parts, each);
    ps += PassPs(bytes, Product({whole.elements(), looked_at, kInstructionsOfPart}), device);
    ps += Product({joins - 1, device.launch_graph_ps});
    parts = joins;
  }
  return ps;
}

// Of as many parts as make the join take least; all of them: it stays one.
int64_t CheapestParts(const TensorType& whole, int64_t parts, const DeviceSpec& device) {
  int64_t best = parts, best_ps = JoinPs(whole, parts, parts, device);
  for (int64_t each = 2; each < parts; each += CeilDiv(each, kStepOfTries)) {
    const int64_t ps = JoinPs(whole, parts, each, device);
    if (ps < best_ps) best = each, best_ps = ps;
  }
  return best;
}

ValueId Cut(std::vector<ValueId> parts, int64_t axis, int64_t each, GraphBuilder& b) {
  while (parts.size() > 1) {
    std::vector<ValueId> joins;
    for (size_t begin = 0; begin < parts.size(); begin += each) {
      const size_t end = std::min(begin + each, parts.size());
      const absl::Span<const ValueId> some = absl::MakeSpan(parts).subspan(begin, end - begin);
      joins.push_back(b.Cat(some, axis));
    }
    parts = std::move(joins);
  }
  return parts[0];
}

// The wide accumulates as joins of all of their parts.
absl::StatusOr<BackwardGraph> WithoutWideSums(const BackwardGraph& graph,
                                              const DeviceSpec& device) {
  std::vector<std::optional<Join>> joins(graph.num_nodes());
  bool any = false;
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    const NodeId id{i};
    if (graph.op(id) != Op::accumulate) continue;
    const auto parts = static_cast<int64_t>(graph.operands(id).size());
    if (parts < 2 || CheapestParts(graph.type(id), parts, device) == parts) continue;
    joins[i] = JoinOfSum(graph, id);
    any |= joins[i].has_value();
  }
  if (!any) return graph;
  Rewriter rewriter(graph);
  GraphBuilder& b = rewriter.builder();
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    const NodeId id{i};
    if (!joins[i]) {
      rewriter.Copy(id);
      continue;
    }
    rewriter.UseOrigin(id);
    std::vector<ValueId> parts;
    for (ValueId part : joins[i]->parts) parts.push_back(rewriter.New(part));
    rewriter.Set({id, 0}, b.Cat(parts, joins[i]->axis));
  }
  return rewriter.Finish();
}

}  // namespace

absl::StatusOr<BackwardGraph> CutWideJoins(const BackwardGraph& given, const LayoutOptions& layouts,
                                           bool place, const DeviceSpec& device) {
  RG_ASSIGN_OR_RETURN(const BackwardGraph graph, WithoutWideSums(given, device));
  std::vector<int64_t> each(graph.num_nodes());  // parts of a join of joins; 0: it stays
  bool any = false;
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    if (graph.op(NodeId{i}) != Op::cat) continue;
    const auto parts = static_cast<int64_t>(graph.operands(NodeId{i}).size());
    const int64_t cheapest = CheapestParts(graph.type(NodeId{i}), parts, device);
    if (cheapest < parts) each[i] = cheapest;
    any |= each[i] > 0;
  }
  if (!any) return graph;
  if (place) {
    std::vector<Layout> assigned = AssignLayouts(graph, layouts).of;
    for (const Alias& placed : PlaceConcats(graph, Consumers(graph), assigned)) {
      each[Index(placed.whole.node)] = 0;
    }
  }
  Rewriter rewriter(graph);
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    const NodeId id{i};
    if (each[i] == 0) {
      rewriter.Copy(id);
      continue;
    }
    rewriter.UseOrigin(id);
    const int64_t axis = graph.node(id).attrs.Int("axis");
    rewriter.Set({id, 0}, Cut(rewriter.NewOperands(id), axis, each[i], rewriter.builder()));
  }
  return rewriter.Finish();
}

}  // namespace retrograd
