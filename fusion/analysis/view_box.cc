#include "fusion/analysis/view_box.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "fusion/kernel/ir/access_map.h"
#include "graph/base/tensor_type.h"

namespace retrograd {
namespace {

struct Interval {
  int64_t begin = 0, end = 0;
};

// The remainders of the box's elements modulo `period` as one interval; nullopt if they wrap or if
// strides above the period are no multiples of it.
std::optional<Interval> Remainders(const ViewBox& box, int64_t period) {
  Interval in{.begin = box.begin % period, .end = box.begin % period + 1};
  for (const auto& [stride, extent] : box.dims) {
    if (stride < period) {
      in.end += stride * (extent - 1);
    } else if (stride % period != 0) {
      return std::nullopt;
    }
  }
  if (in.end > period) return std::nullopt;
  return in;
}

bool ApartModulo(const ViewBox& a, const ViewBox& b, int64_t period) {
  const auto in_a = Remainders(a, period), in_b = Remainders(b, period);
  return in_a && in_b && (in_a->end <= in_b->begin || in_b->end <= in_a->begin);
}

}  // namespace

std::optional<ViewBox> BoxBehindViews(const BackwardGraph& graph, ValueId seen) {
  const Shape& extents = graph.type(seen).shape;
  AccessMap map;
  for (size_t d = 0; d < extents.size(); ++d)
    map.coords.push_back(IndexExpr::Axis(static_cast<int>(d)));
  ValueId v = seen;
  while (graph.pattern(v.node) == Pattern::kView) {
    map = ThroughView(graph, v.node, map, extents);
    v = graph.operands(v.node)[0];
  }
  const IndexExpr at = Linearize(map.coords, DenseStrides(graph.type(v).shape));
  if (!map.guards.empty() || !at.is_affine()) return std::nullopt;
  ViewBox box{.begin = at.offset()};
  for (size_t d = 0; d < extents.size(); ++d) {
    if (extents[d] == 0) return std::nullopt;
    if (extents[d] == 1) continue;
    const int64_t step = at.axis_coef(static_cast<int>(d));
    if (step == 0) return std::nullopt;
    if (step < 0) box.begin += step * (extents[d] - 1);  // the same elements, backwards
    box.dims.push_back({std::abs(step), extents[d]});
    box.elements *= extents[d];
  }
  std::sort(box.dims.begin(), box.dims.end(), std::greater<>());
  int64_t span = 1;
  for (size_t d = box.dims.size(); d-- > 0;) {
    const auto& [stride, extent] = box.dims[d];
    if (stride < span) return std::nullopt;
    span = stride * (extent - 1) + span;
  }
  return box;
}

bool LieApart(const ViewBox& a, const ViewBox& b) {
  if (ApartModulo(a, b, std::numeric_limits<int64_t>::max())) return true;
  for (const ViewBox* box : {&a, &b}) {
    for (const auto& [stride, extent] : box->dims) {
      if (ApartModulo(a, b, stride)) return true;
    }
  }
  return false;
}

}  // namespace retrograd
