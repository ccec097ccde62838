// How a matrix, or a batch of them, lies: as products read and store it.
#ifndef RETROGRAD_FUSION_OPS_MATMUL_MATRIX_STRIDES_H_
#define RETROGRAD_FUSION_OPS_MATMUL_MATRIX_STRIDES_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace retrograd {

// Whether the last two dims are rows, or columns, of unit stride that do not overlap. Not of less
// than two dims.
bool IsMatrix(absl::Span<const int64_t> shape, absl::Span<const int64_t> strides);

// A stride along an extent of 1 becomes what a dense matrix would have. At least two dims.
void NormalizeMatrix(absl::Span<const int64_t> shape, std::vector<int64_t>& strides);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_OPS_MATMUL_MATRIX_STRIDES_H_
