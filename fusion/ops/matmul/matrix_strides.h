// How a matrix, or a batch of them, lies: as products read and store it.
#ifndef RETROGRAD_FUSION_OPS_MATMUL_MATRIX_STRIDES_H_
#define RETROGRAD_FUSION_OPS_MATMUL_MATRIX_STRIDES_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "graph/base/tensor_type.h"

namespace retrograd {

// Whether the last two dims are rows, or columns, of unit stride that do not overlap. Not of less
// than two dims.
bool IsMatrix(absl::Span<const int64_t> shape, absl::Span<const int64_t> strides);

// A stride along an extent of 1 becomes what a dense matrix would have. At least two dims.
void NormalizeMatrix(absl::Span<const int64_t> shape, std::vector<int64_t>& strides);

// The axis of a product's operand along which sums run, if it is one of the two matrices and of
// fp8: tensor cores take such matrices only along it. -1: any.
int AxisOfFp8Sums(int operand, const TensorType& type);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_OPS_MATMUL_MATRIX_STRIDES_H_
