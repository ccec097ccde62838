#include "fusion/kernel/build/iteration_space.h"

#include <algorithm>
#include <deque>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "fusion/kernel/ir/accesses/vector_access.h"
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
  Finder(const KernelRequest& request, KernelMaps& maps)
      : r_(request), g_(request.graph), maps_(maps), space_{.walks = Walks(request.nodes)} {
    FindUses();
  }

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
      space_.maps = &maps_.In(space_.extents);
      cuts_in_reads_.assign(r_.nodes.size(), std::nullopt);
      Spread(root, root_coords);
      // Cuts of reads only make addresses cheaper: a single op does with as many axes as there may
      // be.
      const bool in_reads = space_.extents.size() < kMaxAxes;
      const std::optional<AxisCut> cut = FindCut(in_reads);
      if (!cut) break;
      SplitAxis(cut->first, cut->second, root_coords);
    }
    Check();
  }

  void Refuse(BuildLimit limit, std::string reason) {
    if (!space_.refusal) space_.refusal = {limit, std::move(reason)};
  }

  // A tensor may have thousands of readers elsewhere, each behind a slice of its own.
  void FindUses() {
    absl::flat_hash_set<NodeId> views;
    for (NodeId id : r_.nodes) {
      const absl::Span<const ValueId> operands = g_.operands(id);
      for (uint32_t i = 0; i < operands.size(); ++i) {
        ValueId read = operands[i];
        uses_.push_back({read.node, {id, i, read.result}});
        while (g_.pattern(read.node) == Pattern::kView && views.insert(read.node).second) {
          const NodeId view = read.node;
          read = g_.operands(view)[0];
          uses_.push_back({read.node, {view, 0, read.result}});
        }
      }
    }
    const auto place = [](const InnerUse& u) {
      return std::tuple(u.value, u.use.user, u.use.operand);
    };
    std::sort(uses_.begin(), uses_.end(),
              [&](const InnerUse& a, const InnerUse& b) { return place(a) < place(b); });
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
    auto key = [&](NodeId id) {
      const bool scatter = g_.pattern(id) == Pattern::kScatter;
      return std::tuple(!walked || IsWalked(id), scatter, Elements(PointShape(g_, id)),
                        IsStored(id), Index(id));
    };
    NodeId best = r_.nodes[0];
    auto best_key = key(best);
    for (NodeId id : r_.nodes.subspan(1)) {
      auto other = key(id);
      if (other <= best_key) continue;
      best_key = other;
      best = id;
    }
    return best;
  }

  void Spread(NodeId root, const std::vector<IndexExpr>& root_coords) {
    SetPoints(root, space_.maps->Of({.coords = root_coords, .guards = {}, .fill = 0}));
    pending_.clear();
    shared_reads_.clear();
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
        if (!PlaceByEqualGather() && !PlaceBySharedRead() && !PlaceBeside()) return;
        continue;
      }
      auto [id, result] = *next;
      pending_.erase(next);
      FoldRemainingAxes(id, result);
    }
  }

  // Places an op by the places of its points.
  void SetPoints(NodeId id, const AccessMap* points) {
    if (space_.walks.Find(id) != nullptr) return;
    Walk walk{.result = points};
    if (g_.pattern(id) == Pattern::kReduction) {
      walk = {.result = space_.maps->OfFolded(id, points), .operand = points};
    } else if (g_.pattern(id) == Pattern::kScatter) {
      walk = {.operand = points};
    }
    space_.walks.Add(id, walk);
    queue_.push_back(id);
  }

  void SetResult(NodeId id, const AccessMap* map) {
    if (!map->guards.empty()) return;  // only a part of its points is visited from here
    if (g_.pattern(id) == Pattern::kReduction) {
      if (space_.walks.Find(id) == nullptr) pending_.push_back({id, map});
      return;
    }
    if (g_.pattern(id) == Pattern::kScatter) return;
    SetPoints(id, map);
  }

  void FoldRemainingAxes(NodeId id, const AccessMap* at) {
    const std::vector<IndexExpr>& result = at->coords;
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
    SetPoints(id, space_.maps->Of({.coords = std::move(coords), .guards = {}, .fill = 0}));
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
        SetPoints(id, walk->result);
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
      ForEachRead(id, *walk, [&](ValueId read, const AccessMap* at) {
        if (placed) return;
        const auto [value, map] = BehindViews(read, at);
        if (IsInside(value.node) || !map->guards.empty()) return;
        if (IsConstant(g_, value.node)) return;
        if (!shared_reads_.insert({value, map}).second) return;  // it has placed all that it can
        const size_t before = queue_.size();
        VisitUsersOf(value, map);
        placed = queue_.size() > before;
      });
      if (placed) return true;
    }
    return false;
  }

  // Places one stored op that nothing placed leads to beside a placed one that has as many points
  // and reads another interleaved part of the same value: both fetch the same sectors.
  bool PlaceBeside() {
    if (space_.walks.size() == r_.nodes.size()) return false;
    for (NodeId id : r_.nodes) {
      if (g_.pattern(id) != Pattern::kPointwise || !IsStored(id)) continue;
      if (space_.walks.Find(id) != nullptr) continue;
      for (NodeId other : r_.nodes) {
        if (g_.pattern(other) != Pattern::kPointwise || !IsStored(other)) continue;
        const Walk* walk = space_.walks.Find(other);
        if (walk == nullptr || g_.type(other).shape != g_.type(id).shape) continue;
        if (!ReadPartsOfOne(id, other)) continue;
        SetPoints(id, walk->result);
        return true;
      }
    }
    return false;
  }

  bool ReadPartsOfOne(NodeId a, NodeId b) const {
    for (ValueId of_a : g_.operands(a)) {
      const std::optional<ValueId> whole = InterleavedPartOf(g_, of_a);
      if (!whole) continue;
      for (ValueId of_b : g_.operands(b)) {
        if (InterleavedPartOf(g_, of_b) == whole) return true;
      }
    }
    return false;
  }

  // What lies behind the views of a value, and the map of its access.
  std::pair<ValueId, const AccessMap*> BehindViews(ValueId value, const AccessMap* at) const {
    while (g_.pattern(value.node) == Pattern::kView) {
      at = space_.maps->ThroughView(value.node, at);
      value = g_.operands(value.node)[0];
    }
    return {value, at};
  }

  // Places the ops that make what an op reads. Views in front of stored values may cut an axis,
  // too; not for a scan, whose axis stays whole.
  void VisitOperands(NodeId id) {
    std::optional<AxisCut>& cut = cuts_in_reads_[space_.walks.Position(id)];
    const bool cuts = g_.pattern(id) != Pattern::kScan;
    ForEachRead(id, space_.walks.At(id), [&](ValueId read, const AccessMap* at) {
      const auto [value, map] = BehindViews(read, at);
      if (cuts && !cut) cut = space_.maps->CutIn(map);
      if (IsInside(value.node)) SetResult(value.node, map);
    });
  }

  // Each operand that is read at places known before the data, with the map of its access.
  template <typename Fn>
  void ForEachRead(NodeId id, const Walk& walk, Fn fn) const {
    absl::Span<const ValueId> operands = g_.operands(id);
    switch (g_.pattern(id)) {
      case Pattern::kReduction: fn(operands[0], walk.operand); break;
      case Pattern::kScan: fn(operands[0], walk.result); break;
      case Pattern::kScatter: fn(operands[2], walk.operand); break;
      case Pattern::kPointwise:
      case Pattern::kJoin:
      case Pattern::kAccumulate:
        for (size_t i = 0; i < operands.size(); ++i) {
          fn(operands[i], space_.maps->OfOperand(id, static_cast<int>(i), walk.result));
        }
        break;
      default: break;  // gather: its source is read at indices that only the data knows
    }
  }

  void VisitUsers(NodeId id) { VisitUsersOf({id, 0}, space_.walks.At(id).result); }

  void VisitUsersOf(ValueId value, const AccessMap* map) {
    if (g_.pattern(value.node) == Pattern::kScatter) return;
    auto at = std::lower_bound(uses_.begin(), uses_.end(), value.node,
                               [](const InnerUse& u, NodeId id) { return u.value < id; });
    for (; at != uses_.end() && at->value == value.node; ++at) {
      const Use& use = at->use;
      const NodeId user = use.user;
      if (use.result != value.result) continue;
      if (g_.pattern(user) == Pattern::kView) {
        if (const AccessMap* forward = space_.maps->ThroughViewForward(user, map)) {
          VisitUsersOf({user, 0}, forward);
        }
        continue;
      }
      if (space_.walks.Find(user) != nullptr) continue;
      const Shape& mine = g_.type(value).shape;
      switch (g_.pattern(user)) {
        case Pattern::kReduction:
        case Pattern::kScan: SetPoints(user, map); break;
        case Pattern::kPointwise:
        case Pattern::kAccumulate:
          if (mine == g_.type(user).shape) SetPoints(user, map);
          break;
        case Pattern::kJoin:
          if (g_.op(user) == Op::slice_scatter && use.operand == 0) SetPoints(user, map);
          break;
        default: break;
      }
    }
  }

  // The first cut, in the order of the ops.
  std::optional<AxisCut> FindCut(bool in_reads) const {
    for (size_t i = 0; i < r_.nodes.size(); ++i) {
      const Walk* walk = space_.walks.Find(r_.nodes[i]);
      if (walk == nullptr) continue;
      for (const AccessMap* map : {walk->result, walk->operand}) {
        if (map == nullptr) continue;
        if (auto cut = space_.maps->CutIn(map)) return cut;
      }
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
      if (!OneToOneAxes(walk->result->coords, g_.type(v).shape, space_.extents)) {
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
        folded.push_back(walk.operand->coords[i]);
        folded_shape.push_back(in[i]);
      } else {
        kept |= walk.operand->coords[i].axes();
      }
    }
    auto mask = OneToOneAxes(folded, folded_shape, space_.extents);
    return mask.has_value() && (*mask & kept) == 0;
  }

  const KernelRequest& r_;
  const BackwardGraph& g_;
  KernelMaps& maps_;
  IterationSpace space_;
  std::vector<std::optional<AxisCut>> cuts_in_reads_;  // by op: the first one behind what it reads
  // A use by an op of the kernel, or by a view behind which one reads.
  struct InnerUse {
    NodeId value{};
    Use use;
  };
  std::vector<InnerUse> uses_;  // by value, in the order of its uses
  absl::flat_hash_set<std::pair<ValueId, const AccessMap*>> shared_reads_;  // tried so far
  std::deque<NodeId> queue_;
  std::vector<std::pair<NodeId, const AccessMap*>> pending_;
};

// Slices of so many kinds hardly share an access, and are too many to try together.
constexpr size_t kMostParts = 16;

// Whether a slice's elements lie between those of other slices, in pieces of less than the widest
// access: others are read as well by kernels of their own.
bool TakesTurns(const BackwardGraph& g, NodeId id) {
  if (g.op(id) != Op::slice) return false;
  const TensorType& type = g.type(id);
  const Attrs& attrs = g.node(id).attrs;
  if (attrs.Int("axis") + 1 != static_cast<int64_t>(type.shape.size())) return false;
  return attrs.Int("step") > 1 || type.shape.back() * SizeBytes(type.dtype) < kMaxAccessBytes;
}

}  // namespace

bool GatherAlike(const BackwardGraph& graph, NodeId a, NodeId b) {
  return graph.pattern(a) == Pattern::kGather && graph.op(a) == graph.op(b) &&
         graph.operands(a) == graph.operands(b) && graph.node(a).attrs == graph.node(b).attrs;
}

std::optional<ValueId> InterleavedPartOf(const BackwardGraph& graph, ValueId value) {
  bool takes_turns = false;
  while (graph.pattern(value.node) == Pattern::kView) {
    takes_turns = takes_turns || TakesTurns(graph, value.node);
    value = graph.operands(value.node)[0];
    if (graph.uses(value.node).size() > kMostParts) return std::nullopt;
  }
  if (!takes_turns || IsConstant(graph, value.node)) return std::nullopt;
  return value;
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

IterationSpace FindIterationSpace(const KernelRequest& request, KernelMaps& maps) {
  return Finder(request, maps).Run();
}

}  // namespace retrograd
