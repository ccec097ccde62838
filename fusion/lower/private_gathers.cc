#include "fusion/lower/private_gathers.h"

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "graph/base/status.h"
#include "graph/passes/rewriter.h"

namespace retrograd {
namespace {

// Ops between a gather and the sum, at most: what is made twice stays little.
constexpr int kMostOps = 16;

class Privatizer {
 public:
  explicit Privatizer(const BackwardGraph& g) : g_(g), rewriter_(g) {}

  absl::StatusOr<BackwardGraph> Run() {
    for (uint32_t i = 0; i < g_.num_nodes(); ++i) {
      const NodeId id{i};
      if (g_.op(id) != Op::segment_add) {
        rewriter_.Copy(id);
        continue;
      }
      std::vector<ValueId> operands = rewriter_.NewOperands(id);
      int ops = 0;
      if (SharesGather(g_.operands(id)[2], &ops) && ops <= kMostOps) {
        own_.clear();
        operands[2] = Own(g_.operands(id)[2]);
      }
      rewriter_.UseOrigin(id);
      rewriter_.CopyOver(id, operands);
    }
    return rewriter_.Finish();
  }

 private:
  bool Passes(NodeId id) const {
    return g_.pattern(id) == Pattern::kPointwise || g_.pattern(id) == Pattern::kView;
  }

  // Whether a gather that others read, too, lies behind the value, with pointwise ops and views
  // alone between. Adds those to `ops`.
  bool SharesGather(ValueId v, int* ops) const {
    if (g_.pattern(v.node) == Pattern::kGather) return g_.uses(v.node).size() > 1;
    if (!Passes(v.node) || ++*ops > kMostOps) return false;
    bool shares = false;
    for (ValueId operand : g_.operands(v.node)) shares |= SharesGather(operand, ops);
    return shares;
  }

  // The new value of the sum's own for an old one; the shared one where no gather lies behind it.
  ValueId Own(ValueId v) {
    int ops = 0;
    if (!SharesGather(v, &ops)) return rewriter_.New(v);
    if (const auto known = own_.find(v); known != own_.end()) return known->second;
    std::vector<ValueId> operands;
    for (ValueId operand : g_.operands(v.node)) {
      const bool gather = g_.pattern(v.node) == Pattern::kGather;
      operands.push_back(gather ? rewriter_.New(operand) : Own(operand));
    }
    rewriter_.UseOrigin(v.node);
    const ValueId own = rewriter_.builder().Add(g_.op(v.node), operands, g_.node(v.node).attrs);
    own_[v] = own;
    return own;
  }

  const BackwardGraph& g_;
  Rewriter rewriter_;
  absl::flat_hash_map<ValueId, ValueId> own_;  // of the sum at hand, by old value
};

}  // namespace

absl::StatusOr<BackwardGraph> PrivateGathers(const BackwardGraph& graph) {
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    if (graph.op(NodeId{i}) == Op::segment_add) return Privatizer(graph).Run();
  }
  return graph;
}

}  // namespace retrograd
