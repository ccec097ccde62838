#include "fusion/lower/layouts/dense_order.h"

#include <algorithm>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "graph/base/tensor_type.h"

namespace retrograd {

std::vector<IndexExpr> OwnAxes(size_t rank) {
  std::vector<IndexExpr> coords;
  for (size_t i = 0; i < rank; ++i) coords.push_back(IndexExpr::Axis(static_cast<int>(i)));
  return coords;
}

std::optional<std::vector<int64_t>> AffineStrides(const IndexExpr& address, size_t rank) {
  if (!address.is_affine()) return std::nullopt;
  std::vector<int64_t> strides(rank);
  for (size_t i = 0; i < rank; ++i) strides[i] = address.axis_coef(static_cast<int>(i));
  return strides;
}

bool IsDensePermutation(absl::Span<const int64_t> shape, absl::Span<const int64_t> strides) {
  int64_t span = 1;
  bool row_major = true;
  for (size_t i = shape.size(); i-- > 0 && row_major;) {
    row_major = shape[i] == 1 || strides[i] == span;
    span *= shape[i];
  }
  if (row_major) return true;
  absl::InlinedVector<std::pair<int64_t, int64_t>, 8> dims;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] != 1) dims.push_back({strides[i], shape[i]});
  }
  std::sort(dims.begin(), dims.end());
  span = 1;
  for (auto [stride, extent] : dims) {
    if (stride != span) return false;
    span *= extent;
  }
  return true;
}

Layout DenseInOrderOf(absl::Span<const int64_t> strides, const Shape& shape) {
  absl::InlinedVector<size_t, 8> nested;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] != 1) nested.push_back(d);
  }
  std::stable_sort(nested.begin(), nested.end(),
                   [&](size_t a, size_t b) { return strides[a] > strides[b]; });
  Layout layout;
  layout.strides.assign(shape.size(), 1);
  int64_t span = 1;
  for (size_t d = shape.size(), next = nested.size(); d-- > 0;) {
    const size_t dim = shape[d] == 1 ? d : nested[--next];
    layout.strides[dim] = span;
    span *= std::max<int64_t>(shape[dim], 1);
  }
  return layout;
}

std::vector<int64_t> DenseAlong(const Shape& shape, int axis) {
  if (axis < 0) return DenseStrides(shape);
  Shape moved = shape;
  moved.erase(moved.begin() + axis);
  moved.push_back(shape[axis]);
  std::vector<int64_t> strides = DenseStrides(moved);
  const int64_t unit = strides.back();
  strides.pop_back();
  strides.insert(strides.begin() + axis, unit);
  return strides;
}

}  // namespace retrograd
