#include "fusion/planner/can_share_kernel.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "fusion/analysis/barrier_depths.h"
#include "fusion/kernel/build/build.h"

namespace retrograd {
namespace {

class Separation {
 public:
  explicit Separation(const PlanningContext& context) : context_(context), g_(context.graph) {}

  std::string Reason(NodeId a, NodeId b) const {
    if (b < a) std::swap(a, b);
    if (std::optional<NodeId> barrier = BarrierBetween(a, b)) {
      return absl::StrCat("the library call ", Label(*barrier), " stands between them");
    }
    if (std::optional<NodeId> barrier = WaitsAlone(b, a)) {
      return absl::StrCat(Label(b), " waits for the library call ", Label(*barrier), ", which ",
                          Label(a), " does not");
    }
    if (std::optional<NodeId> barrier = WaitsAlone(a, b)) {
      return absl::StrCat(Label(a), " waits for the library call ", Label(*barrier), ", which ",
                          Label(b), " does not");
    }
    return "neither reads the other, and no large tensor is read by both or joins what they read";
  }

  std::string Label(NodeId id) const {
    return absl::StrCat("%", Index(id), " (", Name(g_.op(id)), ")");
  }

 private:
  bool IsCall(NodeId id) const {
    return IsBarrier(g_, id) || (Computes(g_, id) && context_.region_of[Index(id)] < 0);
  }

  // Marks what the op depends on, itself included.
  std::vector<bool> Before(NodeId id) const {
    std::vector<bool> before(g_.num_nodes(), false);
    before[Index(id)] = true;
    for (uint32_t i = Index(id) + 1; i-- > 0;) {
      if (!before[i]) continue;
      for (ValueId v : g_.operands(NodeId{i})) before[Index(v.node)] = true;
    }
    return before;
  }

  std::vector<bool> After(NodeId id) const {
    std::vector<bool> after(g_.num_nodes(), false);
    after[Index(id)] = true;
    for (uint32_t i = Index(id) + 1; i < g_.num_nodes(); ++i) {
      for (ValueId v : g_.operands(NodeId{i})) after[i] = after[i] || after[Index(v.node)];
    }
    return after;
  }

  std::optional<NodeId> BarrierBetween(NodeId first, NodeId last) const {
    const std::vector<bool> after = After(first), before = Before(last);
    for (uint32_t i = Index(first); i <= Index(last); ++i) {
      if (after[i] && before[i] && IsCall(NodeId{i})) return NodeId{i};
    }
    return std::nullopt;
  }

  // The latest library call that one op depends on and the other does not.
  std::optional<NodeId> WaitsAlone(NodeId one, NodeId other) const {
    const std::vector<bool> mine = Before(one), theirs = Before(other);
    for (uint32_t i = Index(one) + 1; i-- > 0;) {
      if (mine[i] && !theirs[i] && IsCall(NodeId{i})) return NodeId{i};
    }
    return std::nullopt;
  }

  const PlanningContext& context_;
  const BackwardGraph& g_;
};

}  // namespace

absl::Status CanMeet(const PlanningContext& context, NodeId a, NodeId b) {
  const BackwardGraph& g = context.graph;
  const Separation separation(context);
  for (NodeId id : {a, b}) {
    if (context.region_of[Index(id)] >= 0) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        separation.Label(id), IsBarrier(g, id) ? " is a library call, a kernel of its own"
                              : Computes(g, id)
                                  ? " is done by a library call"
                                  : " computes nothing: it is an input, a view or a constant"));
  }
  if (context.region_of[Index(a)] == context.region_of[Index(b)]) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      separation.Label(a), " and ", separation.Label(b), ": ", separation.Reason(a, b)));
}

}  // namespace retrograd
