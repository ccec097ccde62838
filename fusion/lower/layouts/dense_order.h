// Orders of a tensor's dims in memory.
#ifndef RETROGRAD_FUSION_LOWER_LAYOUTS_DENSE_ORDER_H_
#define RETROGRAD_FUSION_LOWER_LAYOUTS_DENSE_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "fusion/kernel/ir/index_expr.h"
#include "fusion/kernel/ir/layout.h"
#include "graph/base/tensor_type.h"

namespace retrograd {

// The coordinates of a tensor of this rank, each as itself.
std::vector<IndexExpr> OwnAxes(size_t rank);

// An affine address as strides over its axes; nullopt of any other.
std::optional<std::vector<int64_t>> AffineStrides(const IndexExpr& address, size_t rank);

// Whether strides run through a dense block once: a permutation of row-major.
bool IsDensePermutation(absl::Span<const int64_t> shape, absl::Span<const int64_t> strides);

// A dense layout of the shape, its dims nested as those with these strides are. Dims of extent 1,
// whose strides say nothing, stay where row-major has them.
Layout DenseInOrderOf(absl::Span<const int64_t> strides, const Shape& shape);

// Row-major strides, but for the axis, if it is one, whose neighbours lie side by side.
std::vector<int64_t> DenseAlong(const Shape& shape, int axis);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_LOWER_LAYOUTS_DENSE_ORDER_H_
