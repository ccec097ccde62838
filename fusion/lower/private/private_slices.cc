#include "fusion/lower/private/private_slices.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "fusion/analysis/cheap_sources.h"
#include "fusion/analysis/consumers.h"
#include "graph/base/status.h"
#include "graph/passes/rewriter.h"

namespace retrograd {
namespace {

// The readers of so many slices come together in a search: an estimate.
constexpr int64_t kFewSlices = 16;

class Slicing {
 public:
  Slicing(const BackwardGraph& g, const FreeReads& free)
      : g_(g),
        consumers_(g),
        rewriter_(g),
        sources_(Sources(g, free)),
        vanishes_(g.num_nodes(), false) {
    for (uint32_t i = static_cast<uint32_t>(g.num_nodes()); i-- > 0;) {
      vanishes_[i] = OnlySlicesAreRead(NodeId{i});
    }
  }

  bool Any() const {
    return std::find(vanishes_.begin(), vanishes_.end(), true) != vanishes_.end();
  }

  absl::StatusOr<BackwardGraph> Run() {
    for (uint32_t i = 0; i < g_.num_nodes(); ++i) {
      const NodeId id{i};
      if (vanishes_[i]) continue;
      if (g_.op(id) == Op::slice && vanishes_[Index(g_.operands(id)[0].node)]) {
        rewriter_.Set({id, 0}, SliceOf(g_.operands(id)[0], id));
        continue;
      }
      rewriter_.Copy(id);
    }
    return rewriter_.Finish();
  }

 private:
  bool SameShape(ValueId a, NodeId b) const { return g_.type(a).shape == g_.type(b).shape; }

  // One that only the values of this pass read goes with them.
  bool OnlySlicesAreRead(NodeId id) const {
    if (!sources_[Index(id)] || consumers_.is_output(id) || !OperandsAreSliceable(id)) return false;
    const auto uses = g_.uses(id);
    const auto slices = std::count_if(uses.begin(), uses.end(),
                                      [&](const Use& use) { return g_.op(use.user) == Op::slice; });
    const auto inner = std::count_if(uses.begin(), uses.end(), [&](const Use& use) {
      return vanishes_[Index(use.user)] && SameShape({use.user, 0}, id);
    });
    return slices + inner == static_cast<int64_t>(uses.size()) &&
           (slices > kFewSlices || inner > 0);
  }

  bool OperandsAreSliceable(NodeId id) const {
    const auto operands = g_.operands(id);
    return std::all_of(operands.begin(), operands.end(),
                       [&](ValueId v) { return SameShape(v, id) || g_.type(v).elements() == 1; });
  }

  // What the slice op makes of the value.
  ValueId SliceOf(ValueId v, NodeId slice) {
    GraphBuilder& builder = rewriter_.builder();
    if (!vanishes_[Index(v.node)]) {
      rewriter_.UseOrigin(slice);
      return builder.Add(Op::slice, {rewriter_.New(v)}, g_.node(slice).attrs);
    }
    std::vector<ValueId> operands;
    for (ValueId operand : g_.operands(v.node)) {
      const bool whole = g_.type(operand).shape == g_.type(v).shape;
      operands.push_back(whole ? SliceOf(operand, slice) : rewriter_.New(operand));
    }
    rewriter_.UseOrigin(v.node);
    return builder.Add(g_.op(v.node), operands, g_.node(v.node).attrs);
  }

  const BackwardGraph& g_;
  const Consumers consumers_;
  Rewriter rewriter_;
  const std::vector<std::optional<ValueId>> sources_;
  std::vector<bool> vanishes_;  // by node
};

}  // namespace

absl::StatusOr<BackwardGraph> PrivateSlices(const BackwardGraph& graph, const FreeReads& free) {
  Slicing slicing(graph, free);
  if (!slicing.Any()) return graph;
  return slicing.Run();
}

}  // namespace retrograd
