#include "fusion/analysis/strided_view.h"

#include <algorithm>

#include "absl/container/inlined_vector.h"
#include "fusion/kernel/build/build.h"
#include "fusion/kernel/ir/access_map.h"

namespace retrograd {
namespace {

using Dims = absl::InlinedVector<int64_t, 8>;

// Runs of dims whose products agree on both sides are independent: one that is one straight line in
// memory is cut anew. False where a run is none.
bool Reshape(absl::Span<const int64_t> from, absl::Span<const int64_t> to, Dims& strides) {
  Dims out(to.size(), 0);
  size_t i = 0, j = 0;
  while (i < from.size() || j < to.size()) {
    const size_t i_begin = i, j_begin = j;
    int64_t here = i < from.size() ? from[i++] : 1, there = j < to.size() ? to[j++] : 1;
    while (here != there) {
      if (here < there) {
        here *= from[i++];
      } else {
        there *= to[j++];
      }
    }
    int64_t step = 0, next = -1;  // of the line so far, innermost first
    for (size_t d = i; d-- > i_begin;) {
      if (from[d] == 1) continue;
      if (next < 0) step = next = strides[d];
      if (strides[d] != next) return false;
      next = strides[d] * from[d];
    }
    for (size_t d = j; d-- > j_begin;) {
      if (to[d] == 1) continue;
      out[d] = step;
      step *= to[d];
    }
  }
  strides = std::move(out);
  return true;
}

// From the operand's strides to the view's. False where strides alone do not tell.
bool Follow(const BackwardGraph& g, NodeId view, Dims& strides, int64_t& offset) {
  const Node& node = g.node(view);
  const Shape& from = g.type(g.operands(view)[0]).shape;
  const Shape& to = node.results[0].shape;
  switch (node.op) {
    case Op::reshape: return Reshape(from, to, strides);
    case Op::permute: {
      const absl::Span<const int64_t> perm = node.attrs.Ints("perm");
      Dims out(perm.size());
      for (size_t d = 0; d < perm.size(); ++d) out[d] = strides[perm[d]];
      strides = std::move(out);
      return true;
    }
    case Op::expand: {
      Dims out(to.size(), 0);
      const size_t skip = to.size() - from.size();
      for (size_t d = 0; d < from.size(); ++d) out[skip + d] = from[d] == 1 ? 0 : strides[d];
      strides = std::move(out);
      return true;
    }
    case Op::slice: {
      int64_t& stride = strides[node.attrs.Int("axis")];
      offset += node.attrs.Int("start") * stride;
      stride *= node.attrs.Int("step", 1);
      return true;
    }
    default: return false;
  }
}

// Where the elements of a value lie in what is stored behind its views, and what guards them.
struct Address {
  ValueId stored;
  IndexExpr place;
  bool guarded = false;
};

Address AddressOf(const BackwardGraph& g, absl::Span<const int64_t> base, ValueId value) {
  const Shape& extents = g.type(value).shape;
  AccessMap map;
  for (size_t d = 0; d < extents.size(); ++d)
    map.coords.push_back(IndexExpr::Axis(static_cast<int>(d)));
  ValueId v = value;
  for (; g.pattern(v.node) == Pattern::kView; v = g.operands(v.node)[0]) {
    map = ThroughView(g, v.node, map, extents);
  }
  return {v, Linearize(map.coords, base), !map.guards.empty()};
}

// The same by index expressions, which see more: a flip of a flip, or a slice that leaves so little
// of a merged dim that splitting it is plain again.
std::optional<StridedView> ByAddress(const BackwardGraph& g, absl::Span<const int64_t> base,
                                     ValueId value) {
  const Shape& extents = g.type(value).shape;
  const auto [stored, address, guarded] = AddressOf(g, base, value);
  if (guarded || !address.is_affine()) return std::nullopt;
  StridedView out{.stored = stored, .offset = address.offset()};
  for (size_t d = 0; d < extents.size(); ++d) {
    out.strides.push_back(address.axis_coef(static_cast<int>(d)));
    if (out.strides.back() < 0) return std::nullopt;
  }
  return out;
}

// What is stored behind a value, and the views on the way, the value's own first.
struct Behind {
  ValueId stored;
  absl::InlinedVector<NodeId, 8> views;
};

Behind BehindOf(const BackwardGraph& g, ValueId value) {
  Behind behind{.stored = value, .views = {}};
  while (g.pattern(behind.stored.node) == Pattern::kView) {
    behind.views.push_back(behind.stored.node);
    behind.stored = g.operands(behind.stored.node)[0];
  }
  return behind;
}

// How a stored value lies; nullopt where no strides, or negative ones, say it.
std::optional<absl::Span<const int64_t>> StoredStrides(const BackwardGraph& g,
                                                       absl::Span<const Layout> layouts,
                                                       ValueId stored) {
  const std::vector<int64_t>& strides = layouts[g.value_index(stored)].strides;
  const bool none = IsConstant(g, stored.node) || strides.size() != g.type(stored).shape.size() ||
                    std::any_of(strides.begin(), strides.end(), [](int64_t s) { return s < 0; });
  return none ? std::nullopt : std::optional<absl::Span<const int64_t>>(strides);
}

// The dim along which neighbours lie side by side; -1: none.
int DimOfNeighbours(const Shape& shape, absl::Span<const int64_t> strides) {
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] > 1 && strides[d] == 1) return static_cast<int>(d);
  }
  return -1;
}

}  // namespace

std::optional<StridedView> AsStrided(const BackwardGraph& g, absl::Span<const Layout> layouts,
                                     ValueId value) {
  const Behind behind = BehindOf(g, value);
  const auto base = StoredStrides(g, layouts, behind.stored);
  if (!base) return std::nullopt;
  if (g.type(value).elements() == 0)
    return StridedView{behind.stored, 0, DenseStrides(g.type(value).shape)};
  Dims strides(base->begin(), base->end());
  int64_t offset = 0;
  for (size_t i = behind.views.size(); i-- > 0;) {
    if (!Follow(g, behind.views[i], strides, offset)) return ByAddress(g, *base, value);
  }
  return StridedView{behind.stored, offset, {strides.begin(), strides.end()}};
}

std::optional<std::vector<int64_t>> StridesWithinPads(const BackwardGraph& g,
                                                      absl::Span<const Layout> layouts,
                                                      ValueId value) {
  const Behind behind = BehindOf(g, value);
  const auto base = StoredStrides(g, layouts, behind.stored);
  if (!base) return std::nullopt;
  const bool pads = std::any_of(behind.views.begin(), behind.views.end(),
                                [&](NodeId view) { return g.op(view) == Op::pad; });
  if (!pads) {
    std::optional<StridedView> view = AsStrided(g, layouts, value);
    return view ? std::optional(std::move(view->strides)) : std::nullopt;
  }
  Dims strides(base->begin(), base->end());
  int64_t offset = 0;
  for (size_t i = behind.views.size(); i-- > 0;) {
    const NodeId view = behind.views[i];
    if (g.type(view).elements() == 0) return std::nullopt;
    if (g.op(view) != Op::pad && !Follow(g, view, strides, offset)) return std::nullopt;
  }
  return std::vector<int64_t>(strides.begin(), strides.end());
}

int FastestDim(const BackwardGraph& g, absl::Span<const Layout> layouts, ValueId value) {
  const Shape& shape = g.type(value).shape;
  if (g.pattern(value.node) != Pattern::kView && Elements(shape) > 0) {
    const auto stored = StoredStrides(g, layouts, value);
    return stored ? DimOfNeighbours(shape, *stored) : -1;
  }
  const auto view = AsStrided(g, layouts, value);
  if (view) return DimOfNeighbours(shape, view->strides);
  const auto base = StoredStrides(g, layouts, BehindOf(g, value).stored);
  if (!base || Elements(shape) == 0) return -1;
  const IndexExpr place = AddressOf(g, *base, value).place;
  uint32_t divided = 0;  // axes within divisions and remainders
  for (const IndexTerm& term : place.terms()) {
    if (term.kind != IndexTerm::kAxis) divided |= term.inner->axes();
  }
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1 || (divided >> d & 1) != 0) continue;
    if (place.axis_coef(static_cast<int>(d)) == 1) return static_cast<int>(d);
  }
  return -1;
}

}  // namespace retrograd
