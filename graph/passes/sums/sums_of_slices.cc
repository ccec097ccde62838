#include "graph/passes/sums/sums_of_slices.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "graph/base/status.h"
#include "graph/passes/rewriter.h"

namespace retrograd {
namespace {

// A value as elements [start, stop) along an axis of a whole: of another value, or of the sum that
// two wholes have at one distance from each other.
struct Piece {
  int whole = 0;
  int64_t axis = 0, start = 0, stop = 0;
};

// A sum of two pieces. The terms are ordered by their wholes.
struct Sum {
  NodeId node{};
  ValueId terms[2];
  int64_t starts[2] = {0, 0};  // of the terms in their wholes
  int64_t length = 0;
  int stretch = -1;
};

// Sums of slices of the same two wholes.
struct Group {
  int whole = 0;  // what they are pieces of
  std::vector<int> sums;
};

// Neighbouring sums of one group that are made at once.
struct Stretch {
  std::vector<int> sums;  // ascending by their places
  bool at_once = false;
  std::optional<ValueId> made;
};

class Summer {
 public:
  explicit Summer(const BackwardGraph& g)
      : g_(g), pieces_(g.num_nodes()), sum_of_(g.num_nodes(), -1), rewriter_(g) {}

  absl::StatusOr<BackwardGraph> Run() {
    for (uint32_t i = 0; i < g_.num_nodes(); ++i) FindPiece(NodeId{i});
    for (Group& group : groups_) FindStretches(group.sums);
    if (std::none_of(stretches_.begin(), stretches_.end(),
                     [](const Stretch& s) { return s.at_once; })) {
      return g_;
    }
    for (uint32_t i = 0; i < g_.num_nodes(); ++i) {
      const NodeId id{i};
      const int sum = sum_of_[i];
      if (sum < 0 || !stretches_[sums_[sum].stretch].at_once) {
        rewriter_.Copy(id);
        continue;
      }
      rewriter_.UseOrigin(id);
      rewriter_.Set({id, 0}, SliceOf(sums_[sum].stretch, sums_[sum].starts[0], sums_[sum].length));
      RG_RETURN_IF_ERROR(rewriter_.builder().status());
    }
    return rewriter_.Finish();
  }

 private:
  void FindPiece(NodeId id) {
    const Attrs& attrs = g_.node(id).attrs;
    if (g_.op(id) == Op::slice) {
      const int64_t start = attrs.Int("start"), stop = attrs.Int("stop");
      if (attrs.Int("step") != 1 || start < 0 || stop <= start) return;
      pieces_[Index(id)] = {WholeOf(g_.operands(id)[0]), attrs.Int("axis"), start, stop};
    } else if (g_.op(id) == Op::add) {
      FindSum(id);
    }
  }

  void FindSum(NodeId id) {
    ValueId a = g_.operands(id)[0], b = g_.operands(id)[1];
    std::optional<Piece> p = pieces_[Index(a.node)], q = pieces_[Index(b.node)];
    if (!p || !q || p->axis != q->axis || !SameType(a, id) || !SameType(b, id)) {
      return;
    }
    if (std::tie(q->whole, q->start) < std::tie(p->whole, p->start)) {
      std::swap(a, b);
      std::swap(p, q);
    }
    const auto key = std::tuple(p->whole, q->whole, p->axis, q->start - p->start);
    const auto [at, added] = group_of_.try_emplace(key, groups_.size());
    if (added) groups_.push_back({wholes_++, {}});
    Group& group = groups_[at->second];
    sum_of_[Index(id)] = static_cast<int>(sums_.size());
    group.sums.push_back(static_cast<int>(sums_.size()));
    sums_.push_back({id, {a, b}, {p->start, q->start}, p->stop - p->start});
    pieces_[Index(id)] = {group.whole, p->axis, p->start, p->stop};
  }

  bool SameType(ValueId v, NodeId id) const {
    return g_.type(v).dtype == g_.type(id).dtype && g_.type(v).shape == g_.type(id).shape;
  }

  int WholeOf(ValueId v) {
    const auto [at, added] = whole_of_.try_emplace(g_.value_index(v), wholes_);
    if (added) ++wholes_;
    return at->second;
  }

  void FindStretches(std::vector<int>& whole) {
    std::sort(whole.begin(), whole.end(),
              [&](int a, int b) { return sums_[a].starts[0] < sums_[b].starts[0]; });
    const size_t first = stretches_.size();
    for (size_t i = 0; i < whole.size(); ++i) {
      if (i == 0 || !Follows(sums_[whole[i - 1]], sums_[whole[i]])) stretches_.emplace_back();
      stretches_.back().sums.push_back(whole[i]);
      sums_[whole[i]].stretch = static_cast<int>(stretches_.size()) - 1;
    }
    for (size_t r = first; r < stretches_.size(); ++r) stretches_[r].at_once = Pays(stretches_[r]);
  }

  // Whether one stands behind the other in both terms, each of which is one value there.
  bool Follows(const Sum& before, const Sum& behind) const {
    for (int t = 0; t < 2; ++t) {
      if (behind.starts[t] != before.starts[t] + before.length) return false;
      const int a = sum_of_[Index(before.terms[t].node)], b = sum_of_[Index(behind.terms[t].node)];
      if ((a < 0) != (b < 0)) return false;
      if (a >= 0 && (sums_[a].stretch != sums_[b].stretch || !stretches_[sums_[a].stretch].at_once))
        return false;
    }
    return true;
  }

  bool Pays(const Stretch& stretch) const {
    if (stretch.sums.size() < 2) return false;
    int64_t all = 0, further = 0;
    for (const int s : stretch.sums) {
      all += sums_[s].length;
      if (IsSummedFurther(sums_[s].node)) further += sums_[s].length;
    }
    return 2 * further >= all;
  }

  bool IsSummedFurther(NodeId id) const {
    const auto uses = g_.uses(id);
    return !uses.empty() && std::all_of(uses.begin(), uses.end(), [&](const Use& use) {
      return sum_of_[Index(use.user)] >= 0;
    });
  }

  // The part of the stretch's sum that begins at `start` of its first term's whole.
  ValueId SliceOf(int r, int64_t start, int64_t length) {
    const ValueId made = Made(r);
    return Slice(made, sums_[stretches_[r].sums[0]].node, start - StartOf(r), length);
  }

  int64_t StartOf(int r) const { return sums_[stretches_[r].sums[0]].starts[0]; }

  ValueId Made(int r) {
    if (stretches_[r].made) return *stretches_[r].made;
    const Sum &first = sums_[stretches_[r].sums.front()], &last = sums_[stretches_[r].sums.back()];
    const int64_t length = last.starts[0] + last.length - first.starts[0];
    ValueId terms[2];
    for (int t = 0; t < 2; ++t) {
      const int sum = sum_of_[Index(first.terms[t].node)];
      terms[t] = sum >= 0 ? SliceOf(sums_[sum].stretch, first.starts[t], length)
                          : Slice(rewriter_.New(g_.operands(first.terms[t].node)[0]), first.node,
                                  first.starts[t], length);
    }
    stretches_[r].made = rewriter_.builder().Add(Op::add, {terms[0], terms[1]});
    return *stretches_[r].made;
  }

  // Along the axis of the sum.
  ValueId Slice(ValueId x, NodeId sum, int64_t start, int64_t length) {
    return rewriter_.builder().Slice(x, pieces_[Index(sum)]->axis, start, start + length);
  }

  const BackwardGraph& g_;
  std::vector<std::optional<Piece>> pieces_;  // by node
  std::vector<int> sum_of_;                   // by node; -1: none
  std::vector<Sum> sums_;
  std::vector<Stretch> stretches_;
  int wholes_ = 0;
  std::map<size_t, int> whole_of_;  // by value index
  // By the wholes of the terms, the axis, and how much later the second begins.
  std::map<std::tuple<int, int, int64_t, int64_t>, size_t> group_of_;
  std::vector<Group> groups_;  // those of terms come first
  Rewriter rewriter_;
};

}  // namespace

absl::StatusOr<BackwardGraph> SumSlicesAtOnce(const BackwardGraph& graph) {
  return Summer(graph).Run();
}

}  // namespace retrograd
