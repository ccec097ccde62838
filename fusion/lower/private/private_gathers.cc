#include "fusion/lower/private/private_gathers.h"

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
    FindNeeded();
    for (uint32_t i = 0; i < g_.num_nodes(); ++i) {
      const NodeId id{i};
      if (!needed_[i]) continue;
      if (!IsPrivate(id)) {
        rewriter_.Copy(id);
        continue;
      }
      own_.clear();
      const auto old = g_.operands(id);
      const ValueId src = Own(old[2]);
      rewriter_.UseOrigin(id);
      rewriter_.CopyOver(id, {rewriter_.New(old[0]), rewriter_.New(old[1]), src});
    }
    return rewriter_.Finish();
  }

 private:
  bool Passes(NodeId id) const {
    return g_.pattern(id) == Pattern::kPointwise || g_.pattern(id) == Pattern::kView;
  }

  bool IsPrivate(NodeId id) const {
    int ops = 0;
    return g_.op(id) == Op::segment_add && SharesGather(g_.operands(id)[2], &ops) &&
           ops <= kMostOps;
  }

  // The nodes that something reads still, once sums have ops of their own.
  void FindNeeded() {
    needed_.assign(g_.num_nodes(), false);
    for (const GraphOutput& out : g_.outputs()) {
      if (out.value) needed_[Index(out.value->node)] = true;
    }
    for (uint32_t i = static_cast<uint32_t>(g_.num_nodes()); i-- > 0;) {
      const NodeId id{i};
      needed_[i] = needed_[i] || g_.op(id) == Op::input;
      if (!needed_[i]) continue;
      const auto operands = g_.operands(id);
      const bool own = IsPrivate(id);
      for (size_t o = 0; o < operands.size(); ++o) {
        if (own && o == 2) {
          MarkRead(operands[o]);
        } else {
          needed_[Index(operands[o].node)] = true;
        }
      }
    }
  }

  // What the ops of a sum's own read of the others.
  void MarkRead(ValueId v) {
    int ops = 0;
    if (!SharesGather(v, &ops)) {
      needed_[Index(v.node)] = true;
      return;
    }
    const bool gather = g_.pattern(v.node) == Pattern::kGather;
    for (ValueId operand : g_.operands(v.node)) {
      if (gather) {
        needed_[Index(operand.node)] = true;
      } else {
        MarkRead(operand);
      }
    }
  }

  // Whether it puts something of each position in the order of a sorted list, for all that read it
  // (fusion/lower/indexed/order_positions.h).
  bool IsInListOrder(NodeId gather) const {
    const ValueId index = g_.operands(gather)[1];
    return g_.op(index.node) == Op::slice &&
           g_.op(g_.operands(index.node)[0].node) == Op::sort_indices;
  }

  // Whether a gather that others read, too, lies behind the value, with pointwise ops and views
  // alone between. Adds those to `ops`.
  bool SharesGather(ValueId v, int* ops) const {
    if (g_.pattern(v.node) == Pattern::kGather) {
      return g_.uses(v.node).size() > 1 && !IsInListOrder(v.node);
    }
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
  std::vector<bool> needed_;                   // by node
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
