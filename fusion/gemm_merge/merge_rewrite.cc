#include "fusion/gemm_merge/merge_rewrite.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "fusion/kernel/build/build.h"
#include "graph/base/status.h"
#include "graph/passes/rewriter.h"

namespace retrograd {
namespace {

constexpr size_t kNone = ~size_t{0};

// Cycles that are broken one by one, each by another walk over the graph.
constexpr int kMostCycles = 16;

// Nodes are emitted in the order of their ids, each after what it reads: a depth-first walk, in
// which a merged matmul stands for the nodes that it replaces and reads what they read.
class Rewriting {
 public:
  Rewriting(const BackwardGraph& g, const std::vector<MergeCandidate>& candidates,
            const std::vector<bool>& chosen)
      : g_(g),
        candidates_(candidates),
        rewriter_(g),
        merge_of_(g.num_nodes(), kNone),
        state_(g.num_nodes() + candidates.size(), kUnseen),
        matmul_of_(g.num_nodes()) {
    for (size_t c = 0; c < candidates.size(); ++c) {
      if (!chosen[c]) continue;
      // What others read of a candidate: each product, or the last step of the sum. The rest of a
      // sum has no other reader.
      if (candidates[c].kind == MergeCandidate::kProducts) {
        for (NodeId id : candidates[c].matmuls) merge_of_[Index(id)] = c;
      } else {
        merge_of_[Index(candidates[c].last)] = c;
      }
    }
  }

  // The candidate through which a node would wait for itself, or kNone when all is emitted.
  size_t Run() {
    std::vector<bool> needed = Needed();
    for (uint32_t i = 0; i < g_.num_nodes(); ++i) {
      if (!needed[i]) continue;
      if (size_t cycle = Walk(ItemOf(NodeId{i})); cycle != kNone) return cycle;
    }
    return kNone;
  }

  absl::StatusOr<BackwardGraph> Finish() { return rewriter_.Finish(); }
  std::vector<NodeId> TakeMatmuls() { return std::move(matmul_of_); }

 private:
  enum State : uint8_t { kUnseen, kOpen, kDone };

  // Items: a node by its id, a merged matmul behind all nodes.
  size_t ItemOf(NodeId id) const {
    const size_t merge = merge_of_[Index(id)];
    return merge == kNone ? Index(id) : g_.num_nodes() + merge;
  }

  template <typename Fn>
  void ForEachRead(size_t item, Fn fn) const {
    if (item < g_.num_nodes()) {
      for (ValueId v : g_.operands(NodeId{static_cast<uint32_t>(item)})) fn(v);
      return;
    }
    const MergeCandidate& c = candidates_[item - g_.num_nodes()];
    for (ValueId v : c.left.parts) fn(v);
    if (c.kind == MergeCandidate::kProducts) {
      fn(g_.operands(c.matmuls[0])[c.shared]);
    } else {
      for (ValueId v : c.right.parts) fn(v);
      if (c.before) fn(*c.before);
    }
  }

  // What outputs need once the merged matmuls have replaced their members.
  std::vector<bool> Needed() const {
    std::vector<bool> needed(g_.num_nodes(), false);
    std::vector<bool> seen(g_.num_nodes() + candidates_.size(), false);
    std::vector<NodeId> stack;
    for (const GraphOutput& out : g_.outputs()) {
      if (out.value) stack.push_back(out.value->node);
    }
    for (uint32_t i = 0; i < g_.num_nodes(); ++i) {  // inputs stay, read or not
      if (g_.pattern(NodeId{i}) == Pattern::kInput) needed[i] = true;
    }
    while (!stack.empty()) {
      const NodeId id = stack.back();
      stack.pop_back();
      needed[Index(id)] = true;
      const size_t item = ItemOf(id);
      if (seen[item]) continue;
      seen[item] = true;
      ForEachRead(item, [&](ValueId v) { stack.push_back(v.node); });
    }
    return needed;
  }

  size_t Walk(size_t root) {
    if (state_[root] == kDone) return kNone;
    std::vector<size_t> stack = {root}, waits;
    while (!stack.empty()) {
      const size_t item = stack.back();
      if (state_[item] == kDone) {
        stack.pop_back();
        continue;
      }
      if (state_[item] == kOpen) {  // all that it reads is there
        Emit(item);
        state_[item] = kDone;
        stack.pop_back();
        continue;
      }
      state_[item] = kOpen;
      waits.clear();
      ForEachRead(item, [&](ValueId v) {
        if (const size_t w = ItemOf(v.node); state_[w] != kDone) waits.push_back(w);
      });
      std::sort(waits.begin(), waits.end(), std::greater<>());
      for (size_t w : waits) {
        if (state_[w] == kOpen) return MergeOnCycle(stack, w);
        if (state_[w] == kUnseen) stack.push_back(w);
      }
    }
    return kNone;
  }

  // The walk came back to `item`: a merged matmul that is open behind it.
  size_t MergeOnCycle(const std::vector<size_t>& stack, size_t item) const {
    size_t found = kNone;
    for (size_t i = 0; i < stack.size(); ++i) {
      if (state_[stack[i]] == kOpen && stack[i] >= g_.num_nodes())
        found = stack[i] - g_.num_nodes();
    }
    if (item >= g_.num_nodes()) found = item - g_.num_nodes();
    RG_CHECK(found != kNone);
    return found;
  }

  // Inputs keep their order, whoever reads them first.
  void EmitInputsUpTo(NodeId last) {
    for (; next_input_ <= Index(last); ++next_input_) {
      if (g_.pattern(NodeId{next_input_}) != Pattern::kInput) continue;
      rewriter_.Copy(NodeId{next_input_});
      state_[next_input_] = kDone;
    }
  }

  void Emit(size_t item) {
    if (item < g_.num_nodes()) {
      const NodeId id{static_cast<uint32_t>(item)};
      if (g_.pattern(id) == Pattern::kInput) return EmitInputsUpTo(id);
      rewriter_.Copy(id);
      matmul_of_[item] = rewriter_.New({id, 0}).node;
      return;
    }
    const MergeCandidate& c = candidates_[item - g_.num_nodes()];
    rewriter_.UseOrigin(c.matmuls[0]);
    if (c.kind == MergeCandidate::kProducts) {
      EmitProducts(c);
    } else {
      EmitSum(c);
    }
  }

  ValueId EmitJoin(const Join& join) {
    GraphBuilder& b = rewriter_.builder();
    auto [at, added] = joins_.try_emplace(std::pair(join.parts, join.axis));
    if (added) {
      std::vector<ValueId> parts;
      for (ValueId v : join.parts) parts.push_back(rewriter_.New(v));
      at->second = b.Cat(parts, join.axis);
    }
    return join.transposed ? b.Permute(at->second, {1, 0}) : at->second;
  }

  void EmitProducts(const MergeCandidate& c) {
    GraphBuilder& b = rewriter_.builder();
    const ValueId joined = EmitJoin(c.left);
    rewriter_.UseOrigin(c.matmuls[0]);
    const ValueId shared = rewriter_.New(g_.operands(c.matmuls[0])[c.shared]);
    const ValueId product = c.shared == 1 ? b.MatMul(joined, shared) : b.MatMul(shared, joined);
    const int64_t axis = c.shared == 1 ? 0 : 1;
    int64_t start = 0;
    for (NodeId id : c.matmuls) {
      const int64_t stop = start + g_.type(id).shape[axis];
      rewriter_.UseOrigin(id);
      rewriter_.Set({id, 0}, b.Slice(product, axis, start, stop));
      matmul_of_[Index(id)] = product.node;
      start = stop;
    }
  }

  void EmitSum(const MergeCandidate& c) {
    GraphBuilder& b = rewriter_.builder();
    const ValueId left = EmitJoin(c.left), right = EmitJoin(c.right);
    const TensorType& type = g_.type(c.last);
    // Where the graph rounds each product before it widens and adds them, their sum is rounded
    // once: its error of half a unit of |p + q| is within the graph's of half a unit of |p| + |q|.
    const ValueId product = b.MatMul(left, right);
    ValueId sum = b.Reshape(product, type.shape);
    if (c.cast) sum = b.Cast(sum, type.dtype);
    if (c.before) {
      rewriter_.UseOrigin(c.last);
      sum = b.Add(
          Op::accumulate, {rewriter_.New(*c.before), sum},
          {{"shape", type.shape}, {"starts", std::vector<int64_t>(2 * type.shape.size(), 0)}});
    }
    rewriter_.Set({c.last, 0}, sum);
    for (NodeId id : c.matmuls) matmul_of_[Index(id)] = product.node;
  }

  const BackwardGraph& g_;
  const std::vector<MergeCandidate>& candidates_;
  Rewriter rewriter_;
  std::vector<size_t> merge_of_;  // by node: the candidate that stands for it
  std::vector<State> state_;      // by item
  uint32_t next_input_ = 0;       // inputs before it are emitted
  std::vector<NodeId> matmul_of_;
  absl::flat_hash_map<std::pair<std::vector<ValueId>, int64_t>, ValueId> joins_;
};

}  // namespace

absl::StatusOr<MergeRewrite> RewriteMerged(const BackwardGraph& graph,
                                           const std::vector<MergeCandidate>& candidates,
                                           std::vector<bool> chosen, const std::vector<int>& kind) {
  for (int cycles = 0;; ++cycles) {
    Rewriting rewriting(graph, candidates, chosen);
    if (const size_t cycle = rewriting.Run(); cycle != kNone) {
      chosen[cycle] = false;
      for (size_t c = 0; c < chosen.size() && cycles >= kMostCycles; ++c) {
        if (kind[c] == kind[cycle]) chosen[c] = false;
      }
      continue;
    }
    MergeRewrite result;
    RG_ASSIGN_OR_RETURN(result.graph, rewriting.Finish());
    result.done = std::move(chosen);
    result.matmul_of = rewriting.TakeMatmuls();
    return result;
  }
}

}  // namespace retrograd
