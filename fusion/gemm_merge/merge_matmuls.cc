#include "fusion/gemm_merge/merge_matmuls.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "fusion/gemm_merge/merge_candidates.h"
#include "fusion/gemm_merge/merge_rewrite.h"
#include "fusion/kernel/build/build.h"
#include "fusion/lower/concat_in_place.h"
#include "fusion/lower/layouts/layouts.h"
#include "fusion/lower/legalize.h"
#include "fusion/ops/matmul/matmul_cost.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

// Both sides of a decision.
struct Sides {
  int64_t apart_ps = 0;
  int64_t together_ps = 0;  // without the join of the left parts, which others may share
  int64_t around_ps = 0;    // of together_ps: copies that merging makes necessary
  int64_t left_bytes = 0;   // of the join of the left parts
};

class Pricer {
 public:
  Pricer(const BackwardGraph& g, const Consumers& consumers, const DeviceSpec& device)
      : g_(g), consumers_(consumers), d_(device) {}

  Sides Price(const MergeCandidate& c) const {
    Sides sides = c.kind == MergeCandidate::kProducts ? Products(c) : Sum(c);
    sides.left_bytes = BytesOf(c.left.parts);
    sides.together_ps += sides.around_ps;
    return sides;
  }

 private:
  MatMulCall CallOf(NodeId id) const {
    const TensorType& d = g_.type(id);
    MatMulCall call;
    call.m = d.shape[0];
    call.n = d.shape[1];
    call.k = g_.type(g_.operands(id)[0]).shape[1];
    call.in_dtype = g_.type(g_.operands(id)[0]).dtype;
    call.out_dtype = d.dtype;
    call.tf32 = g_.numerics().allow_tf32;
    return call;
  }
  int64_t Ps(const MatMulCall& call) const { return PriceMatMul(call, d_).ps; }
  int64_t MovePs(int64_t bytes) const { return TransferPs(bytes, d_.hbm_bytes_per_s); }
  int64_t BytesOf(const std::vector<ValueId>& values) const {
    int64_t bytes = 0;
    for (ValueId v : values) bytes += g_.type(v).size_bytes();
    return bytes;
  }

  // Apart, a product may take in the cast or the accumulate step behind it. Together, whoever
  // stores a part of the result reads it first.
  Sides Products(const MergeCandidate& c) const {
    Sides sides;
    MatMulCall merged = CallOf(c.matmuls[0]);
    int64_t joined = 0;
    for (NodeId id : c.matmuls) {
      MatMulCall call = CallOf(id);
      joined += c.shared == 1 ? call.m : call.n;
      const int64_t bytes = g_.type(id).size_bytes();
      const absl::Span<const NodeId> readers = consumers_.of(id);
      if (consumers_.is_output(id)) {
        sides.around_ps += CopyPs(bytes, d_);
      } else if (readers.size() == 1 && g_.op(readers[0]) == Op::cast &&
                 consumers_.is_output(readers[0])) {
        call.out_dtype = g_.type(readers[0]).dtype;
        sides.around_ps += d_.launch_graph_ps + MovePs(bytes + g_.type(readers[0]).size_bytes());
      } else if (readers.size() == 1 && g_.op(readers[0]) == Op::accumulate) {
        call.accumulate = true;
        sides.around_ps += d_.launch_graph_ps + MovePs(3 * bytes);
      }
      sides.apart_ps += Ps(call);
    }
    (c.shared == 1 ? merged.m : merged.n) = joined;
    sides.together_ps = Ps(merged);
    return sides;
  }

  // Apart, the products behind the first add to what is there; those that are widened first are
  // read one by one by the kernel that adds them.
  Sides Sum(const MergeCandidate& c) const {
    Sides sides;
    MatMulCall merged = CallOf(c.matmuls[0]);
    merged.k = 0;
    for (size_t i = 0; i < c.matmuls.size(); ++i) {
      MatMulCall call = CallOf(c.matmuls[i]);
      merged.k += call.k;
      call.accumulate = !c.cast && (i > 0 || c.before);
      sides.apart_ps += Ps(call);
      if (c.cast) sides.apart_ps += MovePs(g_.type(c.matmuls[i]).size_bytes());
    }
    merged.accumulate = !c.cast && c.before.has_value();
    sides.together_ps = Ps(merged);
    if (c.cast) sides.together_ps += MovePs(g_.type(c.matmuls[0]).size_bytes());
    sides.around_ps = CopyPs(BytesOf(c.right.parts), d_);
    return sides;
  }

  const BackwardGraph& g_;
  const Consumers& consumers_;
  const DeviceSpec& d_;
};

// Candidates with the same left parts share one join: they are chosen together.
struct Family {
  std::vector<size_t> members;
  int64_t join_ps = 0;
};

constexpr int kNoKind = -1;

}  // namespace

// Finds the candidates, prices them, and merges those that are asked for.
struct MatMulMerger::State {
  State(const LegalGraph& legal, const DeviceSpec& device, const MergeOptions& options)
      : g_(legal.graph),
        layouts_(legal.layouts),
        consumers_(g_),
        device_(device),
        options_(options),
        candidates_(FindMergeCandidates(g_, consumers_)) {
    const Pricer pricer(g_, consumers_, device_);
    for (const MergeCandidate& c : candidates_) sides_.push_back(pricer.Price(c));
    join_ps_.assign(candidates_.size(), 0);
    wins_.assign(candidates_.size(), false);
    for (const Family& family : Families()) Choose(family);
    FindKinds();
  }

  int kinds() const { return kinds_; }

  absl::StatusOr<MergedMatMuls> Merge(absl::Span<const MergeVerdict> verdicts) const {
    std::vector<bool> chosen(candidates_.size(), false);
    for (size_t c = 0; c < candidates_.size(); ++c) {
      chosen[c] = wins_[c] && (verdicts.empty() || verdicts[kind_[c]].keep);
    }
    RG_ASSIGN_OR_RETURN(MergedMatMuls out, Merge(std::move(chosen)));
    out.decisions = Decisions(out, verdicts);
    return out;
  }

  absl::StatusOr<std::optional<MergedMatMuls>> MergeAs(const std::vector<bool>& done) const {
    if (done.size() != candidates_.size()) return std::nullopt;
    std::vector<bool> chosen = done;
    for (size_t c = 0; c < candidates_.size(); ++c) chosen[c] = chosen[c] && wins_[c];
    RG_ASSIGN_OR_RETURN(MergedMatMuls out, Merge(std::move(chosen)));
    out.decisions = Decisions(out, {});
    return out;
  }

  absl::StatusOr<MergedMatMuls> Merge(std::vector<bool> chosen) const {
    MergedMatMuls out;
    out.done = chosen;
    if (std::find(chosen.begin(), chosen.end(), true) == chosen.end()) {
      static_cast<LegalGraph&>(out) = {g_, layouts_};
      for (uint32_t i = 0; i < g_.num_nodes(); ++i) out.matmul_of.push_back(NodeId{i});
    } else {
      RG_ASSIGN_OR_RETURN(MergeRewrite rewritten, RewriteMerged(g_, candidates_, chosen, kind_));
      RG_ASSIGN_OR_RETURN(static_cast<LegalGraph&>(out),
                          Legalize(rewritten.graph, options_.layouts));
      out.matmul_of = Renumbered(rewritten, out.graph);
      out.done = std::move(rewritten.done);
    }
    return out;
  }

  std::vector<Decision> Decisions(const MergedMatMuls& merged,
                                  absl::Span<const MergeVerdict> verdicts) const {
    std::vector<Decision> decisions;
    for (size_t c = 0; c < candidates_.size(); ++c) {
      const MergeVerdict verdict =
          verdicts.empty() || !wins_[c] ? MergeVerdict{} : verdicts[kind_[c]];
      decisions.push_back(Decide(c, merged, verdict));
    }
    return decisions;
  }

 private:
  // Joining the parts costs nothing where they can be stored side by side.
  int64_t JoinPs(const Join& join, int64_t bytes) {
    Shape whole = g_.type(join.parts[0]).shape;
    whole[join.axis] = 0;
    for (ValueId v : join.parts) whole[join.axis] += g_.type(v).shape[join.axis];
    if (tried_layouts_.empty()) tried_layouts_ = layouts_.of;
    const bool placed =
        options_.place && PlaceParts(g_, consumers_, tried_layouts_, join.parts, join.axis, whole);
    return placed ? 0 : CopyPs(bytes, device_);
  }

  std::vector<Family> Families() {
    std::vector<Family> families;
    absl::flat_hash_map<std::pair<std::vector<ValueId>, int64_t>, size_t> number;
    for (size_t c = 0; c < candidates_.size(); ++c) {
      const Join& left = candidates_[c].left;
      auto [at, added] = number.try_emplace({left.parts, left.axis}, families.size());
      if (added) families.push_back({{}, JoinPs(candidates_[c].left, sides_[c].left_bytes)});
      families[at->second].members.push_back(c);
    }
    return families;
  }

  int64_t Margin(int64_t ps) const {
    return std::max(device_.margin_ps, ps / 1'000'000 * device_.margin_ppm);
  }

  // All members that win by themselves, if they win the join as well.
  void Choose(const Family& family) {
    int64_t gain = 0;
    std::vector<size_t> winners;
    for (size_t c : family.members) {
      const Sides& s = sides_[c];
      const int64_t won = s.apart_ps - s.together_ps;
      if (won <= Margin(s.together_ps)) continue;
      gain += won;
      winners.push_back(c);
    }
    const bool pays = !winners.empty() && gain - family.join_ps > Margin(family.join_ps);
    if (options_.regardless) winners = family.members;
    if (!pays && !options_.regardless) winners.clear();
    for (size_t c : winners) wins_[c] = true;
    for (size_t c : family.members) {
      const size_t sharers = std::max<size_t>(winners.size(), 1);
      join_ps_[c] = family.join_ps / static_cast<int64_t>(sharers);
    }
  }

  // Equal matmuls at equal prices, with equal prices around them.
  void FindKinds() {
    absl::flat_hash_map<std::string, int> number;
    kind_.assign(candidates_.size(), kNoKind);
    for (size_t c = 0; c < candidates_.size(); ++c) {
      if (!wins_[c]) continue;
      const MergeCandidate& candidate = candidates_[c];
      const Sides& s = sides_[c];
      std::string key = absl::StrCat(candidate.kind, " ", candidate.shared, " ", candidate.cast,
                                     " ", candidate.before.has_value(), " ", join_ps_[c], " ",
                                     s.apart_ps, " ", s.together_ps, " ", s.around_ps);
      for (NodeId id : candidate.matmuls) {
        absl::StrAppend(&key, " ", g_.type(g_.operands(id)[0]).Print(), g_.type(id).Print());
      }
      kind_[c] = number.try_emplace(std::move(key), static_cast<int>(number.size())).first->second;
    }
    kinds_ = static_cast<int>(number.size());
  }

  // Legalizing adds copies and moves ids; matmuls keep their number and order.
  static std::vector<NodeId> Renumbered(const MergeRewrite& rewritten, const BackwardGraph& legal) {
    std::vector<NodeId> now;
    for (uint32_t i = 0; i < legal.num_nodes(); ++i) {
      if (legal.op(NodeId{i}) == Op::matmul) now.push_back(NodeId{i});
    }
    std::vector<NodeId> by_rewritten(rewritten.graph.num_nodes());
    size_t next = 0;
    for (uint32_t i = 0; i < rewritten.graph.num_nodes(); ++i) {
      if (rewritten.graph.op(NodeId{i}) == Op::matmul) by_rewritten[i] = now[next++];
    }
    std::vector<NodeId> out = rewritten.matmul_of;
    for (NodeId& id : out) id = by_rewritten[Index(id)];
    return out;
  }

  Decision Decide(size_t c, const MergedMatMuls& merged, const MergeVerdict& verdict) const {
    const MergeCandidate& candidate = candidates_[c];
    const std::vector<NodeId>& matmul_of = merged.matmul_of;
    const bool together = merged.done[c];
    Decision d;
    d.together = together;
    d.a = {matmul_of[Index(candidate.matmuls[0])]};
    for (size_t i = 1; i < candidate.matmuls.size() && !together; ++i) {
      d.b.push_back(matmul_of[Index(candidate.matmuls[i])]);
    }
    std::sort(d.b.begin(), d.b.end());
    d.apart_ps = sides_[c].apart_ps;
    d.together_ps = sides_[c].together_ps + join_ps_[c];
    d.reason = absl::StrCat(candidate.matmuls.size(), candidate.kind == MergeCandidate::kProducts
                                                          ? " matmuls that share an operand"
                                                          : " matmuls that are added up");
    if (wins_[c] && verdict.keep && !together) {
      d.limit = "cycle";
      d.together_ps = 0;
      d.reason += " stay apart: what one of them reads depends on what another one makes";
      return d;
    }
    const bool overruled = wins_[c] && !verdict.keep;
    absl::StrAppend(&d.reason, together ? " are one" : " stay apart", ": one ",
                    together ? "takes " : "would take ", Costs(c));
    if (verdict.with_ps > 0) {
      absl::StrAppend(&d.reason, overruled ? "; but " : "; ", "the whole plan takes ",
                      Us(verdict.with_ps), " us with this and its like, ",
                      verdict.at_least ? "at least " : "", Us(verdict.without_ps), " us without");
    }
    if (overruled) {
      d.together_ps = verdict.with_ps;
      d.apart_ps = verdict.without_ps;
    }
    return d;
  }

  static std::string Us(int64_t ps) {
    return absl::StrFormat("%.2f", static_cast<double>(ps) / 1e6);
  }

  std::string Costs(size_t c) const {
    const Sides& s = sides_[c];
    const std::string join =
        join_ps_[c] == 0 ? std::string("its operands stored side by side")
                         : absl::StrCat(Us(join_ps_[c]), " us to join ", s.left_bytes, " B");
    return absl::StrCat(Us(s.together_ps - s.around_ps), " us, with ", join, " and ",
                        Us(s.around_ps), " us for copies around it, against ", Us(s.apart_ps),
                        " us");
  }

  const BackwardGraph& g_;
  const ValueLayouts& layouts_;
  const Consumers consumers_;
  const DeviceSpec& device_;
  const MergeOptions options_;
  const std::vector<MergeCandidate> candidates_;
  std::vector<Layout> tried_layouts_;  // those of the graph, but while parts are placed
  // By candidate: both sides, its share of the family's join, whether it wins, its kind.
  std::vector<Sides> sides_;
  std::vector<int64_t> join_ps_;
  std::vector<bool> wins_;
  std::vector<int> kind_;
  int kinds_ = 0;
};

MatMulMerger::MatMulMerger(const LegalGraph& graph, const DeviceSpec& device,
                           const MergeOptions& options)
    : state_(std::make_unique<State>(graph, device, options)) {}
MatMulMerger::~MatMulMerger() = default;
int MatMulMerger::kinds() const { return state_->kinds(); }
absl::StatusOr<MergedMatMuls> MatMulMerger::Merge(absl::Span<const MergeVerdict> verdicts) const {
  return state_->Merge(verdicts);
}

absl::StatusOr<std::optional<MergedMatMuls>> MatMulMerger::MergeAs(
    const std::vector<bool>& done) const {
  return state_->MergeAs(done);
}

std::vector<Decision> MatMulMerger::Decisions(const MergedMatMuls& merged,
                                              absl::Span<const MergeVerdict> verdicts) const {
  return state_->Decisions(merged, verdicts);
}

absl::StatusOr<MergedMatMuls> MergeMatMuls(const LegalGraph& graph, const DeviceSpec& device,
                                           const MergeOptions& options) {
  return MatMulMerger(graph, device, options).Merge();
}

}  // namespace retrograd
