#include "fusion/kernel/ir/access_map.h"

#include <algorithm>

#include "absl/container/inlined_vector.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

using Strides = absl::InlinedVector<int64_t, 8>;

// Row-major.
Strides StridesIn(absl::Span<const int64_t> shape) {
  Strides strides(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0; stride *= std::max<int64_t>(shape[i], 1)) {
    strides[i] = stride;
  }
  return strides;
}

IndexExpr Flatten(absl::Span<const IndexExpr> coords, absl::Span<const int64_t> shape) {
  return Linearize(coords, StridesIn(shape));
}

// The coordinates of row-major position `flat` in `shape`.
std::vector<IndexExpr> Unflatten(const IndexExpr& flat, absl::Span<const int64_t> shape,
                                 absl::Span<const int64_t> extents) {
  const Strides strides = StridesIn(shape);
  std::vector<IndexExpr> coords(shape.size());
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] <= 1) continue;  // the only coordinate is 0
    IndexExpr q = FloorDiv(flat, strides[i], extents);
    coords[i] = i == 0 ? q : Mod(q, shape[i], extents);
  }
  return coords;
}

// Reshapes group by group: runs of dims whose products agree on both sides are independent, which
// keeps the expressions of the untouched dims plain.
std::vector<IndexExpr> ReshapeCoords(absl::Span<const IndexExpr> from,
                                     absl::Span<const int64_t> from_shape,
                                     absl::Span<const int64_t> to_shape,
                                     absl::Span<const int64_t> extents) {
  std::vector<IndexExpr> to(to_shape.size());
  size_t i = 0, j = 0;
  while (j < to_shape.size()) {
    size_t i_end = i, j_end = j;
    int64_t pi = 1, pj = 1;
    pj *= to_shape[j_end++];
    while (pi != pj) {
      if (pi < pj) {
        if (i_end >= from_shape.size()) break;
        pi *= from_shape[i_end++];
      } else {
        if (j_end >= to_shape.size()) break;
        pj *= to_shape[j_end++];
      }
    }
    if (pi != pj) {  // extents 0: nothing is ever evaluated
      i_end = from_shape.size();
      j_end = to_shape.size();
    }
    if (i_end == i + 1 && j_end == j + 1) {  // the dim as it was
      if (to_shape[j] > 1) to[j] = from[i];
      i = i_end;
      j = j_end;
      continue;
    }
    IndexExpr flat = Flatten(from.subspan(i, i_end - i), from_shape.subspan(i, i_end - i));
    std::vector<IndexExpr> part = Unflatten(flat, to_shape.subspan(j, j_end - j), extents);
    std::move(part.begin(), part.end(), to.begin() + j);
    i = i_end;
    j = j_end;
  }
  return to;
}

// The same guard on what a division rounds down: e / 2 < 5 where e < 10.
Guard WithoutDivision(Guard guard) {
  while (guard.expr.terms().size() == 1) {
    const IndexTerm& t = guard.expr.terms()[0];
    if (t.kind != IndexTerm::kFloorDiv || t.coef != 1) break;
    const int64_t offset = guard.expr.offset();
    guard = {*t.inner, (guard.begin - offset) * t.divisor, (guard.end - offset) * t.divisor};
  }
  return guard;
}

void AddGuard(AccessMap& map, IndexExpr expr, int64_t begin, int64_t end,
              absl::Span<const int64_t> extents) {
  Guard guard = WithoutDivision({std::move(expr), begin, end});
  const IndexRange r = Range(guard.expr, extents);
  if (guard.begin <= r.min && r.max < guard.end) return;  // always holds
  // What is cut out of a part that is put back where it was holds there already.
  for (const Guard& known : map.guards) {
    if (Implies(known, guard, extents)) return;
  }
  map.guards.push_back(std::move(guard));
}

}  // namespace

bool Implies(const Guard& guard, const Guard& other, absl::Span<const int64_t> extents) {
  const IndexExpr apart = other.expr + guard.expr * -1;
  if (!apart.is_constant()) return false;
  const IndexRange r = Range(other.expr, extents);
  const int64_t begin = std::max(guard.begin + apart.offset(), r.min);
  const int64_t end = std::min(guard.end + apart.offset(), r.max + 1);
  return other.begin <= begin && end <= other.end;
}

std::vector<Guard> WithoutImplied(std::vector<Guard> guards, absl::Span<const int64_t> extents) {
  for (size_t i = guards.size(); i-- > 0;) {
    const auto implies = [&](const Guard& other) {
      return &other != &guards[i] && Implies(other, guards[i], extents);
    };
    if (std::any_of(guards.begin(), guards.end(), implies)) {
      guards.erase(guards.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  return guards;
}

IndexExpr Linearize(absl::Span<const IndexExpr> coords, absl::Span<const int64_t> strides) {
  IndexExpr sum;
  for (size_t i = 0; i < coords.size(); ++i) sum.AddScaled(coords[i], strides[i]);
  return sum;
}

AccessMap ThroughBroadcast(absl::Span<const int64_t> operand_shape,
                           absl::Span<const int64_t> result_shape, const AccessMap& result) {
  AccessMap map{.guards = result.guards, .fill = result.fill};
  const size_t skip = result_shape.size() - operand_shape.size();
  map.coords.reserve(operand_shape.size());
  for (size_t i = 0; i < operand_shape.size(); ++i) {
    map.coords.push_back(operand_shape[i] == 1 ? IndexExpr() : result.coords[skip + i]);
  }
  return map;
}

AccessMap ThroughView(const BackwardGraph& graph, NodeId view, const AccessMap& result,
                      absl::Span<const int64_t> extents) {
  const Node& node = graph.node(view);
  const Shape& in = graph.type(graph.operands(view)[0]).shape;
  const Shape& out = node.results[0].shape;
  AccessMap map{.guards = result.guards, .fill = result.fill};
  if (node.op == Op::reshape) {
    map.coords = ReshapeCoords(result.coords, out, in, extents);
    return map;
  }
  if (node.op == Op::expand) return ThroughBroadcast(in, out, result);
  map.coords = result.coords;
  switch (node.op) {
    case Op::permute: {
      absl::Span<const int64_t> perm = node.attrs.Ints("perm");
      for (size_t i = 0; i < perm.size(); ++i) map.coords[perm[i]] = result.coords[i];
      break;
    }
    case Op::slice: {
      const int64_t axis = node.attrs.Int("axis");
      map.coords[axis] = result.coords[axis] * node.attrs.Int("step", 1) +
                         IndexExpr::Constant(node.attrs.Int("start"));
      break;
    }
    case Op::flip:
      for (int64_t axis : node.attrs.Ints("axes")) {
        map.coords[axis] = result.coords[axis] * -1 + IndexExpr::Constant(in[axis] - 1);
      }
      break;
    case Op::pad: {
      absl::Span<const int64_t> low = node.attrs.Ints("low");
      for (size_t i = 0; i < in.size(); ++i) {
        map.coords[i] = result.coords[i] + IndexExpr::Constant(-low[i]);
        AddGuard(map, map.coords[i], 0, in[i], extents);
      }
      map.fill = node.attrs.Float("value");
      break;
    }
    default: RG_CHECK(false && "not a view");
  }
  return map;
}

std::optional<AccessMap> ThroughViewForward(const BackwardGraph& graph, NodeId view,
                                            const AccessMap& operand,
                                            absl::Span<const int64_t> extents) {
  const Node& node = graph.node(view);
  const Shape& in = graph.type(graph.operands(view)[0]).shape;
  const Shape& out = node.results[0].shape;
  AccessMap map{.guards = operand.guards, .fill = operand.fill};
  switch (node.op) {
    case Op::reshape: map.coords = ReshapeCoords(operand.coords, in, out, extents); return map;
    case Op::permute: {
      map.coords = operand.coords;
      absl::Span<const int64_t> perm = node.attrs.Ints("perm");
      for (size_t i = 0; i < perm.size(); ++i) map.coords[i] = operand.coords[perm[i]];
      return map;
    }
    case Op::flip:
      map.coords = operand.coords;
      for (int64_t axis : node.attrs.Ints("axes")) {
        map.coords[axis] = operand.coords[axis] * -1 + IndexExpr::Constant(in[axis] - 1);
      }
      return map;
    default: return std::nullopt;
  }
}

AccessMap ThroughJoin(const BackwardGraph& graph, NodeId join, int number, const AccessMap& result,
                      absl::Span<const int64_t> extents) {
  const Node& node = graph.node(join);
  const Shape& operand = graph.type(graph.operands(join)[number]).shape;
  AccessMap map = result;
  switch (node.op) {
    case Op::cat: {
      const int64_t axis = node.attrs.Int("axis");
      int64_t start = 0;
      for (int i = 0; i < number; ++i) start += graph.type(graph.operands(join)[i]).shape[axis];
      map.coords[axis] = result.coords[axis] + IndexExpr::Constant(-start);
      AddGuard(map, map.coords[axis], 0, operand[axis], extents);
      break;
    }
    case Op::slice_scatter: {
      if (number == 0) break;  // the base: everywhere (the source goes first where it covers)
      const int64_t axis = node.attrs.Int("axis"), step = node.attrs.Int("step", 1);
      IndexExpr shifted = result.coords[axis] + IndexExpr::Constant(-node.attrs.Int("start"));
      map.coords[axis] = FloorDiv(shifted, step, extents);
      AddGuard(map, shifted, 0, (operand[axis] - 1) * step + 1, extents);
      if (step > 1) map.guards.push_back({Mod(shifted, step, extents), 0, 1});
      break;
    }
    case Op::accumulate: {
      absl::Span<const int64_t> starts = node.attrs.Ints("starts");
      for (size_t i = 0; i < operand.size(); ++i) {
        map.coords[i] =
            result.coords[i] + IndexExpr::Constant(-starts[number * operand.size() + i]);
        AddGuard(map, map.coords[i], 0, operand[i], extents);
      }
      break;
    }
    default: RG_CHECK(false && "not a join");
  }
  return map;
}

}  // namespace retrograd
