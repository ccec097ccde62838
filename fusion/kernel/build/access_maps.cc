#include "fusion/kernel/build/access_maps.h"

#include <algorithm>

#include "absl/hash/hash.h"

namespace retrograd {
namespace {

std::optional<AxisCut> CutIn(const IndexExpr& e, absl::Span<const int64_t> extents) {
  for (const IndexTerm& t : e.terms()) {
    if (t.kind == IndexTerm::kAxis) continue;
    const IndexExpr& in = *t.inner;
    if (in.terms().size() == 1 && in.offset() == 0 && in.terms()[0].coef == 1 &&
        in.terms()[0].kind == IndexTerm::kAxis) {
      const int axis = in.terms()[0].axis;
      if (extents[axis] % t.divisor == 0 && t.divisor < extents[axis]) {
        return std::pair(axis, t.divisor);
      }
    }
    if (auto cut = CutIn(in, extents)) return cut;
  }
  return std::nullopt;
}

// Of an inner expression no more than its size: terms share inner ones, which would be walked again
// for each of them.
size_t HashOf(const IndexExpr& e) {
  size_t hash = absl::HashOf(e.offset(), e.terms().size());
  for (const IndexTerm& t : e.terms()) {
    hash = absl::HashOf(hash, t.kind, t.axis, t.divisor, t.coef);
    if (t.inner != nullptr) hash = absl::HashOf(hash, t.inner->offset(), t.inner->terms().size());
  }
  return hash;
}

}  // namespace

AccessMaps::AccessMaps(const BackwardGraph& graph, std::vector<int64_t> extents)
    : graph_(graph), extents_(std::move(extents)) {}

size_t AccessMaps::Hash::operator()(const AccessMap* map) const {
  size_t hash = absl::HashOf(map->coords.size(), map->guards.size());
  for (const IndexExpr& e : map->coords) hash = absl::HashOf(hash, HashOf(e));
  for (const Guard& g : map->guards) hash = absl::HashOf(hash, HashOf(g.expr), g.begin, g.end);
  return hash;
}

const AccessMap* AccessMaps::Of(AccessMap map) {
  map.fill = 0;
  const auto known = known_.find(&map);
  if (known != known_.end()) return *known;
  return *known_.insert(&maps_.emplace_back(std::move(map))).first;
}

template <typename Fn>
const AccessMap* AccessMaps::Once(const Step& step, Fn make) {
  const auto known = steps_.find(step);
  if (known != steps_.end()) return known->second;
  std::optional<AccessMap> made = make();
  const AccessMap* map = made ? Of(*std::move(made)) : nullptr;
  steps_.emplace(step, map);
  return map;
}

const AccessMap* AccessMaps::ThroughView(NodeId view, const AccessMap* result) {
  return Once({view, kView, result}, [&]() -> std::optional<AccessMap> {
    return retrograd::ThroughView(graph_, view, *result, extents_);
  });
}

const AccessMap* AccessMaps::ThroughViewForward(NodeId view, const AccessMap* operand) {
  return Once({view, kViewForward, operand},
              [&] { return retrograd::ThroughViewForward(graph_, view, *operand, extents_); });
}

const AccessMap* AccessMaps::OfOperand(NodeId id, int number, const AccessMap* result) {
  const bool pointwise = graph_.pattern(id) == Pattern::kPointwise;
  const Shape &from = graph_.type(graph_.operands(id)[number]).shape, &to = graph_.type(id).shape;
  if (pointwise && from == to) return result;
  return Once({id, number, result}, [&]() -> std::optional<AccessMap> {
    if (pointwise) return ThroughBroadcast(from, to, *result);
    return ThroughJoin(graph_, id, number, *result, extents_);
  });
}

const AccessMap* AccessMaps::OfFolded(NodeId reduction, const AccessMap* operand) {
  return Once({reduction, kFolded, operand}, [&]() -> std::optional<AccessMap> {
    const absl::Span<const int64_t> axes = graph_.node(reduction).attrs.Ints("axes");
    const bool keep = graph_.node(reduction).attrs.Int("keep") != 0;
    AccessMap result;
    for (size_t i = 0; i < operand->coords.size(); ++i) {
      const bool folded = std::find(axes.begin(), axes.end(), int64_t(i)) != axes.end();
      if (!folded) result.coords.push_back(operand->coords[i]);
      if (folded && keep) result.coords.emplace_back();
    }
    return result;
  });
}

std::optional<AxisCut> AccessMaps::CutIn(const AccessMap* map) {
  auto [at, added] = cuts_.try_emplace(map, std::nullopt);
  for (size_t i = 0; added && i < map->coords.size() && !at->second; ++i) {
    at->second = retrograd::CutIn(map->coords[i], extents_);
  }
  return at->second;
}

}  // namespace retrograd
