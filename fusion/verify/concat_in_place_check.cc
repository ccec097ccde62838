// The check of a placed join. What it needs to know of views it works out from the graph.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "fusion/verify/concat_in_place_check.h"
#include "fusion/verify/symbolic_value.h"

namespace retrograd {
namespace {

template <typename... Args>
absl::Status Broken(const Args&... args) {
  return absl::FailedPreconditionError(absl::StrCat(args...));
}

// The ends of each axis and of all together, the middles, and the second elements.
std::vector<Coords> Places(const Shape& shape) {
  std::vector<Coords> places = {Coords(shape.size(), 0), Coords(shape.size())};
  for (size_t i = 0; i < shape.size(); ++i) places[1][i] = shape[i] - 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    for (int64_t at : {std::min<int64_t>(1, shape[i] - 1), shape[i] / 2, shape[i] - 1}) {
      places.push_back(places[0]);
      places.back()[i] = at;
    }
  }
  return places;
}

bool IsOutput(const BackwardGraph& g, ValueId value) {
  return std::any_of(g.outputs().begin(), g.outputs().end(), [&](const GraphOutput& out) {
    if (!out.value) return false;
    ValueId v = *out.value;
    while (g.pattern(v.node) == Pattern::kView) v = g.operands(v.node)[0];
    return v == value;
  });
}

// In how many joins of the plan the value is a part or the whole.
int Mentions(const FusionPlan& plan, ValueId value) {
  int count = 0;
  for (const Group& group : plan.groups) {
    const Alias* join = AliasOf(group);
    if (join == nullptr) continue;
    count += join->whole == value;
    for (const Alias::Part& part : join->parts) count += part.value == value;
  }
  return count;
}

}  // namespace

absl::Status CheckAlias(const BackwardGraph& g, const FusionPlan& plan, const Group& group,
                        const Alias& join) {
  const NodeId id = group.nodes[0];
  if (group.nodes.size() != 1 || g.op(id) != Op::cat || join.whole != ValueId{id, 0} ||
      group.outputs != std::vector<ValueId>{join.whole} || !group.recomputed.empty()) {
    return Broken("P5: its placed join is of another op than its cat");
  }
  const absl::Span<const ValueId> operands = g.operands(id);
  std::vector<ValueId> parts;
  for (const Alias::Part& part : join.parts) parts.push_back(part.value);
  std::sort(parts.begin(), parts.end());
  if (join.parts.size() != operands.size() || parts != group.inputs ||
      std::adjacent_find(parts.begin(), parts.end()) != parts.end()) {
    return Broken("P5: its placed join has other parts than its cat");
  }
  if (!group.in_place.empty() || group.workspace_bytes != 0) {
    return Broken("P8: its placed join takes over bytes or has a workspace");
  }
  if (IsOutput(g, join.whole) || Mentions(plan, join.whole) != 1) {
    return Broken("P5: the whole of its placed join must lie elsewhere too");
  }
  const GraphMeaning places(g, plan.layouts, std::vector<bool>(g.num_nodes(), false), 1);
  const int64_t axis = g.node(id).attrs.Int("axis");
  int64_t start = 0;
  for (size_t i = 0; i < operands.size(); ++i) {
    const ValueId value = join.parts[i].value;
    const Shape& shape = g.type(operands[i]).shape;
    if (g.pattern(value.node) == Pattern::kInput || IsOutput(g, value) ||
        Mentions(plan, value) != 1) {
      return Broken("P5: %", Index(value.node), ".", value.result,
                    " of its placed join must lie elsewhere too");
    }
    if (g.type(value).elements() != Elements(shape)) {
      return Broken("P6: %", Index(value.node), ".", value.result,
                    " is more than its part of the placed join");
    }
    for (const Coords& at : Places(shape)) {
      Coords in_whole = at;
      in_whole[axis] += start;
      ValueId stored, whole;
      int64_t address = 0, wanted = 0;
      if (places.Address(operands[i], at, stored, address) && stored == value &&
          places.Address(join.whole, in_whole, whole, wanted) &&
          address + join.parts[i].offset == wanted) {
        continue;
      }
      return Broken("P6: %", Index(value.node), ".", value.result,
                    " does not lie where the whole of its placed join has it");
    }
    start += shape[axis];
  }
  return absl::OkStatus();
}

}  // namespace retrograd
