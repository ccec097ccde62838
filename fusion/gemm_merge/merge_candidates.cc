#include "fusion/gemm_merge/merge_candidates.h"

#include <algorithm>
#include <map>

#include "absl/container/flat_hash_map.h"
#include "fusion/kernel/build/build.h"

namespace retrograd {
namespace {

// Search bound, which keeps candidates linear in the size of the graph: matmuls further apart than
// this, in ops, belong to different layers, and merging them would keep the operands of one alive
// until the other's are there.
constexpr uint32_t kNear = 512;

bool IsPlainMatMul(const BackwardGraph& g, NodeId id) {
  return g.op(id) == Op::matmul && g.type(id).shape.size() == 2 &&
         g.type(id).dtype == g.type(g.operands(id)[0]).dtype && g.type(id).elements() > 0 &&
         g.type(g.operands(id)[0]).shape.size() == 2 &&
         g.type(g.operands(id)[1]).shape.size() == 2 && g.type(g.operands(id)[0]).elements() > 0;
}

bool IsTranspose(const BackwardGraph& g, ValueId v) {
  return g.op(v.node) == Op::permute && g.type(v).shape.size() == 2 &&
         g.node(v.node).attrs.Ints("perm")[0] == 1;
}

// The join of operands along an axis, seen behind their transposes if all are transposed.
Join JoinOf(const BackwardGraph& g, const std::vector<ValueId>& operands, int64_t axis) {
  const bool transposed =
      std::all_of(operands.begin(), operands.end(), [&](ValueId v) { return IsTranspose(g, v); });
  if (!transposed) return {operands, axis, false};
  Join join{{}, 1 - axis, true};
  for (ValueId v : operands) join.parts.push_back(g.operands(v.node)[0]);
  return join;
}

bool AllDistinct(std::vector<ValueId> values) {
  std::sort(values.begin(), values.end());
  return std::adjacent_find(values.begin(), values.end()) == values.end();
}

// Puts the matmuls into the order of their left parts, so that equal sets have equal joins.
template <typename LeftOf>
void SortByPart(const BackwardGraph& g, std::vector<NodeId>& matmuls, LeftOf left_of) {
  auto base = [&](NodeId id) {
    const ValueId v = left_of(id);
    return IsTranspose(g, v) ? g.operands(v.node)[0] : v;
  };
  std::stable_sort(matmuls.begin(), matmuls.end(),
                   [&](NodeId a, NodeId b) { return base(a) < base(b); });
}

class Finder {
 public:
  Finder(const BackwardGraph& g, const Consumers& consumers)
      : g_(g), consumers_(consumers), taken_(g.num_nodes(), false) {}

  std::vector<MergeCandidate> Run() {
    for (uint32_t i = 0; i < g_.num_nodes(); ++i) {
      if (g_.op(NodeId{i}) == Op::accumulate && IsChainEnd(NodeId{i})) FindSums(NodeId{i});
    }
    for (int shared : {1, 0}) FindProducts(shared);
    std::stable_sort(found_.begin(), found_.end(),
                     [](const auto& a, const auto& b) { return a.last < b.last; });
    return std::move(found_);
  }

 private:
  // accumulate(previous, term), both whole.
  bool IsStep(NodeId id) const {
    if (g_.op(id) != Op::accumulate || g_.operands(id).size() != 2) return false;
    return g_.type(g_.operands(id)[0]) == g_.type(id) && g_.type(g_.operands(id)[1]) == g_.type(id);
  }
  bool ReadOnce(NodeId id) const { return g_.uses(id).size() == 1 && !OutputItself(id); }
  bool OutputItself(NodeId id) const { return consumers_.is_output(id); }

  // The step behind this one in its chain.
  std::optional<NodeId> NextStep(NodeId id) const {
    if (!ReadOnce(id)) return std::nullopt;
    const Use& use = g_.uses(id)[0];
    if (use.operand != 0 || !IsStep(use.user)) return std::nullopt;
    return use.user;
  }
  bool IsChainEnd(NodeId id) const { return IsStep(id) && !NextStep(id); }

  struct Term {
    NodeId matmul{};
    bool cast = false;
  };

  // The matmul whose product, perhaps widened, is the term and nothing else; in any shape.
  std::optional<Term> ProductBehind(ValueId term) const {
    Term out;
    for (ValueId v = term;; v = g_.operands(v.node)[0]) {
      if (!ReadOnce(v.node)) return std::nullopt;
      if (IsPlainMatMul(g_, v.node)) {
        out.matmul = v.node;
        return taken_[Index(v.node)] ? std::nullopt : std::optional<Term>(out);
      }
      if (g_.op(v.node) == Op::reshape) continue;
      const bool widens = g_.op(v.node) == Op::cast && !out.cast &&
                          g_.type(v).dtype == DType::kFp32 &&
                          SizeBytes(g_.type(g_.operands(v.node)[0]).dtype) == 2 &&
                          IsFloat(g_.type(g_.operands(v.node)[0]).dtype);
      if (!widens) return std::nullopt;
      out.cast = true;
    }
  }

  // Runs of neighbouring products in the chain that ends here.
  void FindSums(NodeId end) {
    std::vector<NodeId> steps = {end};
    while (IsStep(g_.operands(steps.back())[0].node) &&
           NextStep(g_.operands(steps.back())[0].node)) {
      steps.push_back(g_.operands(steps.back())[0].node);
    }
    std::reverse(steps.begin(), steps.end());
    std::vector<Term> run;
    std::vector<NodeId> run_steps;
    std::optional<ValueId> before;
    auto flush = [&] {
      if (run.size() >= 2) AddSum(run, run_steps, before);
      run.clear();
      run_steps.clear();
    };
    auto fits = [&](const Term& t) {
      if (run.empty()) return true;
      const NodeId first = run[0].matmul;
      return g_.type(first) == g_.type(t.matmul) && run[0].cast == t.cast &&
             Index(t.matmul) - std::min(Index(first), Index(t.matmul)) < kNear;
    };
    if (auto first = ProductBehind(g_.operands(steps[0])[0])) run.push_back(*first);
    before = std::nullopt;
    for (NodeId step : steps) {
      const auto term = ProductBehind(g_.operands(step)[1]);
      if (!term || !fits(*term)) flush();
      if (term) {
        if (run.empty()) before = g_.operands(step)[0];
        run.push_back(*term);
        run_steps.push_back(step);
      }
    }
    flush();
  }

  void AddSum(const std::vector<Term>& run, const std::vector<NodeId>& steps,
              std::optional<ValueId> before) {
    MergeCandidate c{.kind = MergeCandidate::kSum, .steps = steps, .cast = run[0].cast};
    if (steps.size() == run.size()) c.before = before;
    c.last = steps.back();
    for (const Term& t : run) c.matmuls.push_back(t.matmul);
    SortByPart(g_, c.matmuls, [&](NodeId id) { return g_.operands(id)[0]; });
    std::vector<ValueId> left, right;
    for (NodeId id : c.matmuls) {
      left.push_back(g_.operands(id)[0]);
      right.push_back(g_.operands(id)[1]);
    }
    c.left = JoinOf(g_, left, 1);
    c.right = JoinOf(g_, right, 0);
    Add(std::move(c));
  }

  void FindProducts(int shared) {
    absl::flat_hash_map<ValueId, size_t> number;
    std::vector<std::vector<NodeId>> readers;  // of one operand
    for (uint32_t i = 0; i < g_.num_nodes(); ++i) {
      if (taken_[i] || !IsPlainMatMul(g_, NodeId{i})) continue;
      auto [at, added] = number.try_emplace(g_.operands(NodeId{i})[shared], readers.size());
      if (added) readers.emplace_back();
      readers[at->second].push_back(NodeId{i});
    }
    for (const std::vector<NodeId>& all : readers) {
      // Those whose parts are just what a sum joins stay among themselves and share its join.
      std::map<size_t, size_t> count;
      for (NodeId id : all) ++count[SumOf(id, shared)];
      std::map<size_t, std::vector<NodeId>> near_of;
      for (NodeId id : all) {
        const size_t sum = SumOf(id, shared);
        const bool whole = sum < found_.size() && count[sum] == found_[sum].left.parts.size();
        std::vector<NodeId>& near = near_of[whole ? sum : g_.num_nodes()];
        if (!near.empty() && Index(id) - Index(near[0]) >= kNear) {
          AddProducts(near, shared);
          near.clear();
        }
        near.push_back(id);
      }
      for (const auto& [sum, near] : near_of) AddProducts(near, shared);
    }
  }

  // The sum that joins what the product reads besides the shared operand, or a number beyond all.
  size_t SumOf(NodeId product, int shared) const {
    ValueId v = g_.operands(product)[1 - shared];
    if (IsTranspose(g_, v)) v = g_.operands(v.node)[0];
    const auto at = sum_of_.find(v);
    return at == sum_of_.end() ? g_.num_nodes() : at->second;
  }

  void AddProducts(const std::vector<NodeId>& matmuls, int shared) {
    if (matmuls.size() < 2) return;
    MergeCandidate c{.kind = MergeCandidate::kProducts, .matmuls = matmuls, .shared = shared};
    c.last = matmuls.back();
    SortByPart(g_, c.matmuls, [&](NodeId id) { return g_.operands(id)[1 - shared]; });
    std::vector<ValueId> others;
    for (NodeId id : c.matmuls) others.push_back(g_.operands(id)[1 - shared]);
    c.left = JoinOf(g_, others, shared == 1 ? 0 : 1);
    Add(std::move(c));
  }

  void Add(MergeCandidate c) {
    if (!AllDistinct(c.left.parts) || !AllDistinct(c.right.parts)) return;
    for (NodeId id : c.matmuls) taken_[Index(id)] = true;
    if (c.kind == MergeCandidate::kSum) {
      for (ValueId v : c.left.parts) sum_of_.try_emplace(v, found_.size());
    }
    found_.push_back(std::move(c));
  }

  const BackwardGraph& g_;
  const Consumers& consumers_;
  std::vector<bool> taken_;  // matmuls of a candidate
  absl::flat_hash_map<ValueId, size_t>
      sum_of_;  // by left part: the number of the sum that joins it
  std::vector<MergeCandidate> found_;
};

}  // namespace

std::vector<MergeCandidate> FindMergeCandidates(const BackwardGraph& graph,
                                                const Consumers& consumers) {
  return Finder(graph, consumers).Run();
}

}  // namespace retrograd
