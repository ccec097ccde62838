#include "fusion/kernel/build/iteration_space.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

// The shape over which an op iterates: what a reduction or scatter reads, else its result.
const Shape& PointShape(const BackwardGraph& g, NodeId id) {
  switch (g.pattern(id)) {
    case Pattern::kReduction: return g.type(g.operands(id)[0]).shape;
    case Pattern::kScatter: return g.type(g.operands(id)[2]).shape;
    default: return g.type(id).shape;
  }
}

std::string Label(const BackwardGraph& g, NodeId id) {
  return absl::StrCat("%", Index(id), " (", Name(g.op(id)), " ", g.type(id).Print(), ")");
}

class Finder {
 public:
  explicit Finder(const KernelRequest& request)
      : r_(request), g_(request.graph), space_{.walks = Walks(request.nodes)} {}

  // Over the points of the op that has most. Where what is stored reads but parts of it, or some
  // of it several times, the points are those of an op that is stored or folds.
  IterationSpace Run() {
    const NodeId root = Root(/*walked=*/false);
    RunFrom(root);
    if (!space_.refusal.has_value() || IsWalked(root)) return std::move(space_);
    IterationSpace space = std::exchange(space_, {.walks = Walks(r_.nodes)});
    RunFrom(Root(/*walked=*/true));
    return space_.refusal.has_value() ? std::move(space) : std::move(space_);
  }

 private:
  using Cut = std::pair<int, int64_t>;  // an axis, and the divisor at which a view cuts it

  void RunFrom(NodeId root) {
    // An axis of one place is written as that place, as views and broadcasts write it; but a
    // scatter is told which axes its rows are.
    const bool scatters = g_.pattern(root) == Pattern::kScatter;
    std::vector<IndexExpr> root_coords;
    for (int64_t extent : PointShape(g_, root)) {
      const bool place = extent == 1 && !scatters;
      root_coords.push_back(place ? IndexExpr() : IndexExpr::Axis(space_.extents.size()));
      if (!place) space_.extents.push_back(extent);
    }
    // Splitting an axis changes every expression: start over, at most once per divisor met.
    for (int round = 0; round < 2 * kMaxAxes; ++round) {
      if (space_.extents.size() > kMaxAxes) {
        Refuse(BuildLimit::kSplitAxes,
               absl::StrCat("views cut the axes of the ops into more than ", kMaxAxes));
        return;
      }
      space_.walks.Clear();
      cuts_in_reads_.assign(r_.nodes.size(), std::nullopt);
      Spread(root, root_coords);
      // Cuts of reads only make addresses cheaper: a single op does with as many axes as there may
      // be.
      const bool in_reads = space_.extents.size() < kMaxAxes;
      const std::optional<Cut> cut = FindCut(in_reads);
      if (!cut) break;
      SplitAxis(cut->first, cut->second, root_coords);
    }
    Check();
  }

  void Refuse(BuildLimit limit, std::string reason) {
    if (!space_.refusal) space_.refusal = {limit, std::move(reason)};
  }

  bool IsInside(NodeId id) const { return space_.walks.Position(id) >= 0; }

  bool IsStored(NodeId id) const {
    return std::any_of(r_.stores.begin(), r_.stores.end(), [&](ValueId v) { return v.node == id; });
  }

  // Whether a kernel visits each of the op's points; others are evaluated where they are read.
  bool IsWalked(NodeId id) const {
    const Pattern pattern = g_.pattern(id);
    return IsStored(id) || pattern == Pattern::kReduction || pattern == Pattern::kScan ||
           pattern == Pattern::kScatter;
  }

  // Of all ops, or of those that are walked: most points; among equals a stored op (its memory
  // order is the one that matters), then the last, which stands closest to the stores.
  NodeId Root(bool walked) const {
    NodeId best = r_.nodes[0];
    auto key = [&](NodeId id) {
      const bool scatter = g_.pattern(id) == Pattern::kScatter;
      return std::tuple(!walked || IsWalked(id), scatter, Elements(PointShape(g_, id)),
                        IsStored(id), Index(id));
    };
    for (NodeId id : r_.nodes) {
      if (key(id) > key(best)) best = id;
    }
    return best;
  }

  void Spread(NodeId root, const std::vector<IndexExpr>& root_coords) {
    SetPoints(root, root_coords);
    pending_.clear();
    while (true) {
      while (!queue_.empty()) {
        NodeId id = queue_.front();
        queue_.pop_front();
        VisitOperands(id);
        VisitUsers(id);
      }
      // Reductions known only by their result fold whatever axes their result leaves over.
      auto next = std::find_if(pending_.begin(), pending_.end(), [&](const auto& p) {
        return space_.walks.Find(p.first) == nullptr;
      });
      if (next == pending_.end()) {
        if (!PlaceByEqualGather() && !PlaceBySharedRead()) return;
        continue;
      }
      auto [id, result] = *next;
      pending_.erase(next);
      FoldRemainingAxes(id, result);
    }
  }

  // Places an op by the coordinates of its points.
  void SetPoints(NodeId id, const std::vector<IndexExpr>& coords) {
    if (space_.walks.Find(id) != nullptr) return;
    Walk walk;
    if (g_.pattern(id) == Pattern::kReduction) {
      walk.operand.coords = coords;
      absl::Span<const int64_t> axes = g_.node(id).attrs.Ints("axes");
      const bool keep = g_.node(id).attrs.Int("keep") != 0;
      for (size_t i = 0; i < coords.size(); ++i) {
        const bool folded = std::find(axes.begin(), axes.end(), int64_t(i)) != axes.end();
        if (!folded) walk.result.coords.push_back(coords[i]);
        if (folded && keep) walk.result.coords.emplace_back();
      }
    } else if (g_.pattern(id) == Pattern::kScatter) {
      walk.operand.coords = coords;
    } else {
      walk.result.coords = coords;
    }
    space_.walks.Add(id, std::move(walk));
    queue_.push_back(id);
  }

  void SetResult(NodeId id, const AccessMap& map) {
    if (!map.guards.empty()) return;  // only a part of its points is visited from here
    if (g_.pattern(id) == Pattern::kReduction) {
      if (space_.walks.Find(id) == nullptr) pending_.push_back({id, map.coords});
      return;
    }
    if (g_.pattern(id) == Pattern::kScatter) return;
    SetPoints(id, map.coords);
  }

  void FoldRemainingAxes(NodeId id, const std::vector<IndexExpr>& result) {
    AxisMask used = 0;
    for (const IndexExpr& e : result) used |= e.axes();
    const Shape& in = g_.type(g_.operands(id)[0]).shape;
    absl::Span<const int64_t> axes = g_.node(id).attrs.Ints("axes");
    Shape folded;
    for (int64_t a : axes) folded.push_back(in[a]);
    IndexExpr flat;
    int64_t points = 1;
    for (int a = static_cast<int>(space_.extents.size()) - 1; a >= 0; --a) {
      if (used >> a & 1) continue;
      flat = flat + IndexExpr::Axis(a) * points;
      points *= space_.extents[a];
    }
    if (points != Elements(folded)) return;
    const bool keep = g_.node(id).attrs.Int("keep") != 0;
    std::vector<IndexExpr> coords(in.size());
    int64_t stride = points;
    for (size_t i = 0, out = 0; i < in.size(); ++i) {
      const bool is_folded = std::find(axes.begin(), axes.end(), int64_t(i)) != axes.end();
      if (is_folded) {
        stride /= std::max<int64_t>(in[i], 1);
        IndexExpr q = FloorDiv(flat, std::max<int64_t>(stride, 1), space_.extents);
        coords[i] = in[i] == 1 ? IndexExpr() : Mod(q, in[i], space_.extents);
        if (keep) ++out;
      } else {
        coords[i] = result[out++];
      }
    }
    SetPoints(id, coords);
  }

  // Places one gather that nothing placed leads to where another one stands that picks the same
  // rows: a sum has gathers of its own (fusion/lower/private/private_gathers.h).
  bool PlaceByEqualGather() {
    if (space_.walks.size() == r_.nodes.size()) return false;
    for (NodeId id : r_.nodes) {
      if (g_.pattern(id) != Pattern::kGather || space_.walks.Find(id) != nullptr) continue;
      for (NodeId other : r_.nodes) {
        const Walk* walk = space_.walks.Find(other);
        if (walk == nullptr || !GatherAlike(g_, id, other)) continue;
        SetPoints(id, walk->result.coords);
        return true;
      }
    }
    return false;
  }

  // Places one op that nothing placed leads to, but that reads a stored value which a placed op
  // reads: where that one reads it.
  bool PlaceBySharedRead() {
    if (space_.walks.size() == r_.nodes.size()) return false;
    for (NodeId id : r_.nodes) {
      const Walk* walk = space_.walks.Find(id);
      if (walk == nullptr) continue;
      bool placed = false;
      ForEachRead(id, *walk, [&](ValueId read, const AccessMap& at) {
        if (placed) return;
        BehindViews(read, at, [&](ValueId value, const AccessMap& map) {
          if (IsInside(value.node) || !map.guards.empty()) return;
          if (IsConstant(g_, value.node)) return;
          const size_t before = queue_.size();
          VisitUsersOf(value, map);
          placed = queue_.size() > before;
        });
      });
      if (placed) return true;
    }
    return false;
  }

  // fn(what lies behind the views of a value, the map of its access).
  template <typename Fn>
  void BehindViews(ValueId value, const AccessMap& at, Fn fn) const {
    if (g_.pattern(value.node) != Pattern::kView) return fn(value, at);
    AccessMap map = ThroughView(g_, value.node, at, space_.extents);
    value = g_.operands(value.node)[0];
    while (g_.pattern(value.node) == Pattern::kView) {
      map = ThroughView(g_, value.node, map, space_.extents);
      value = g_.operands(value.node)[0];
    }
    fn(value, map);
  }

  // Places the ops that make what an op reads. Views in front of stored values may cut an axis,
  // too; not for a scan, whose axis stays whole.
  void VisitOperands(NodeId id) {
    std::optional<Cut>& cut = cuts_in_reads_[space_.walks.Position(id)];
    const bool cuts = g_.pattern(id) != Pattern::kScan;
    ForEachRead(id, space_.walks.At(id), [&](ValueId read, const AccessMap& at) {
      BehindViews(read, at, [&](ValueId value, const AccessMap& map) {
        if (cuts && !cut) cut = CutInAny(map.coords);
        if (IsInside(value.node)) SetResult(value.node, map);
      });
    });
  }

  // Each operand that is read at places known before the data, with the map of its access.
  template <typename Fn>
  void ForEachRead(NodeId id, const Walk& walk, Fn fn) const {
    absl::Span<const ValueId> operands = g_.operands(id);
    const bool folds = g_.pattern(id) == Pattern::kReduction || g_.pattern(id) == Pattern::kScatter;
    const AccessMap& here = folds ? walk.operand : walk.result;
    switch (g_.pattern(id)) {
      case Pattern::kReduction:
      case Pattern::kScan: fn(operands[0], here); break;
      case Pattern::kScatter: fn(operands[2], here); break;
      case Pattern::kPointwise:
        for (ValueId v : operands) {
          const Shape &from = g_.type(v).shape, &to = g_.type(id).shape;
          from == to ? fn(v, here) : fn(v, ThroughBroadcast(from, to, here));
        }
        break;
      case Pattern::kJoin:
      case Pattern::kAccumulate:
        for (size_t i = 0; i < operands.size(); ++i) {
          fn(operands[i], ThroughJoin(g_, id, static_cast<int>(i), here, space_.extents));
        }
        break;
      default: break;  // gather: its source is read at indices that only the data knows
    }
  }

  void VisitUsers(NodeId id) { VisitUsersOf({id, 0}, space_.walks.At(id).result); }

  void VisitUsersOf(ValueId value, const AccessMap& map) {
    if (g_.pattern(value.node) == Pattern::kScatter) return;
    for (const Use& use : g_.uses(value.node)) {
      const NodeId user = use.user;
      if (use.result != value.result) continue;
      if (g_.pattern(user) == Pattern::kView) {
        if (auto forward = ThroughViewForward(g_, user, map, space_.extents)) {
          VisitUsersOf({user, 0}, *forward);
        }
        continue;
      }
      if (!IsInside(user) || space_.walks.Find(user) != nullptr) continue;
      const Shape& mine = g_.type(value).shape;
      switch (g_.pattern(user)) {
        case Pattern::kReduction:
        case Pattern::kScan: SetPoints(user, map.coords); break;
        case Pattern::kPointwise:
        case Pattern::kAccumulate:
          if (mine == g_.type(user).shape) SetPoints(user, map.coords);
          break;
        case Pattern::kJoin:
          if (g_.op(user) == Op::slice_scatter && use.operand == 0) SetPoints(user, map.coords);
          break;
        default: break;
      }
    }
  }

  std::optional<Cut> CutIn(const IndexExpr& e) const {
    for (const IndexTerm& t : e.terms()) {
      if (t.kind == IndexTerm::kAxis) continue;
      const IndexExpr& in = *t.inner;
      if (in.terms().size() == 1 && in.offset() == 0 && in.terms()[0].coef == 1 &&
          in.terms()[0].kind == IndexTerm::kAxis) {
        const int axis = in.terms()[0].axis;
        if (space_.extents[axis] % t.divisor == 0 && t.divisor < space_.extents[axis]) {
          return std::pair(axis, t.divisor);
        }
      }
      if (auto cut = CutIn(in)) return cut;
    }
    return std::nullopt;
  }

  std::optional<Cut> CutInAny(absl::Span<const IndexExpr> coords) const {
    for (const IndexExpr& e : coords) {
      if (auto cut = CutIn(e)) return cut;
    }
    return std::nullopt;
  }

  // The first cut, in the order of the ops.
  std::optional<Cut> FindCut(bool in_reads) const {
    for (size_t i = 0; i < r_.nodes.size(); ++i) {
      const Walk* walk = space_.walks.Find(r_.nodes[i]);
      if (walk == nullptr) continue;
      if (auto cut = CutInAny(walk->result.coords)) return cut;
      if (auto cut = CutInAny(walk->operand.coords)) return cut;
      if (in_reads && cuts_in_reads_[i]) return cuts_in_reads_[i];
    }
    return std::nullopt;
  }

  void SplitAxis(int axis, int64_t divisor, std::vector<IndexExpr>& root_coords) {
    std::vector<int64_t> extents = space_.extents;
    extents[axis] /= divisor;
    extents.insert(extents.begin() + axis + 1, divisor);
    std::vector<IndexExpr> replacement;
    for (int a = 0; a < static_cast<int>(space_.extents.size()); ++a) {
      if (a == axis) {
        replacement.push_back(IndexExpr::Axis(a) * divisor + IndexExpr::Axis(a + 1));
      } else {
        replacement.push_back(IndexExpr::Axis(a < axis ? a : a + 1));
      }
    }
    for (IndexExpr& e : root_coords) e = Substitute(e, replacement, extents);
    space_.extents = std::move(extents);
  }

  void Check() {
    for (ValueId v : r_.stores) {
      if (g_.pattern(v.node) == Pattern::kScatter) continue;
      const Walk* walk = space_.walks.Find(v.node);
      if (walk == nullptr) {
        Refuse(BuildLimit::kIterationSpace,
               absl::StrCat(Label(g_, v.node), " is stored but no walk of ",
                            "the other ops visits each of its elements once"));
        return;
      }
      if (!OneToOneAxes(walk->result.coords, g_.type(v).shape, space_.extents)) {
        Refuse(BuildLimit::kIterationSpace,
               absl::StrCat(Label(g_, v.node), " would be stored more than once per element"));
        return;
      }
    }
    for (NodeId id : r_.nodes) {
      if (g_.pattern(id) == Pattern::kScan && space_.walks.Find(id) == nullptr) {
        Refuse(
            BuildLimit::kScanAxis,
            absl::StrCat(Label(g_, id), " runs along places that the other ops do ", "not visit"));
        return;
      }
      if (g_.pattern(id) != Pattern::kReduction) continue;
      const Walk* walk = space_.walks.Find(id);
      if (walk == nullptr || !FoldsWholeAxes(id, *walk)) {
        Refuse(BuildLimit::kReductionAxes,
               absl::StrCat(Label(g_, id), " folds axes of ", g_.type(g_.operands(id)[0]).Print(),
                            " that the other ops do not walk"));
        return;
      }
    }
  }

  bool FoldsWholeAxes(NodeId id, const Walk& walk) const {
    const Shape& in = g_.type(g_.operands(id)[0]).shape;
    absl::Span<const int64_t> axes = g_.node(id).attrs.Ints("axes");
    std::vector<IndexExpr> folded;
    Shape folded_shape;
    AxisMask kept = 0;
    for (size_t i = 0; i < in.size(); ++i) {
      if (std::find(axes.begin(), axes.end(), int64_t(i)) != axes.end()) {
        folded.push_back(walk.operand.coords[i]);
        folded_shape.push_back(in[i]);
      } else {
        kept |= walk.operand.coords[i].axes();
      }
    }
    auto mask = OneToOneAxes(folded, folded_shape, space_.extents);
    return mask.has_value() && (*mask & kept) == 0;
  }

  const KernelRequest& r_;
  const BackwardGraph& g_;
  IterationSpace space_;
  std::vector<std::optional<Cut>> cuts_in_reads_;  // by op: the first one behind what it reads
  std::deque<NodeId> queue_;
  std::vector<std::pair<NodeId, std::vector<IndexExpr>>> pending_;
};

}  // namespace

bool GatherAlike(const BackwardGraph& graph, NodeId a, NodeId b) {
  return graph.pattern(a) == Pattern::kGather && graph.op(a) == graph.op(b) &&
         graph.operands(a) == graph.operands(b) && graph.node(a).attrs == graph.node(b).attrs;
}

std::optional<AxisMask> OneToOneAxes(absl::Span<const IndexExpr> coords,
                                     absl::Span<const int64_t> shape,
                                     absl::Span<const int64_t> extents) {
  const IndexExpr flat = Linearize(coords, DenseStrides(shape));
  if (!flat.is_affine()) return std::nullopt;
  // Mixed radix: sorted by coefficient, each axis steps over the span of the smaller ones. A
  // flipped axis runs backwards and covers the same elements.
  std::vector<std::pair<int64_t, int>> radix;
  AxisMask mask = 0;
  for (const IndexTerm& t : flat.terms()) {
    radix.push_back({std::abs(t.coef), t.axis});
    mask |= AxisMask{1} << t.axis;
  }
  if (Elements(shape) == 0) return mask;  // no element is visited twice
  std::sort(radix.begin(), radix.end());
  int64_t span = 1;
  for (auto [coef, axis] : radix) {
    if (extents[axis] == 1) continue;
    if (coef != span) return std::nullopt;
    span *= extents[axis];
  }
  if (span != Elements(shape)) return std::nullopt;
  return mask;
}

IterationSpace FindIterationSpace(const KernelRequest& request) { return Finder(request).Run(); }

}  // namespace retrograd
