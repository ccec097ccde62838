#include "fusion/ops/matmul/matrix_strides.h"

#include <algorithm>

namespace retrograd {

bool IsMatrix(absl::Span<const int64_t> shape, absl::Span<const int64_t> given) {
  const size_t rank = shape.size();
  if (rank < 2) return false;
  std::vector<int64_t> strides(given.begin(), given.end());
  NormalizeMatrix(shape, strides);
  const int64_t rows = shape[rank - 2], cols = shape[rank - 1];
  const int64_t row_stride = strides[rank - 2], col_stride = strides[rank - 1];
  return (col_stride == 1 && row_stride >= std::max<int64_t>(cols, 1)) ||
         (row_stride == 1 && col_stride >= std::max<int64_t>(rows, 1));
}

void NormalizeMatrix(absl::Span<const int64_t> shape, std::vector<int64_t>& strides) {
  const size_t rank = shape.size();
  const int64_t rows = shape[rank - 2], cols = shape[rank - 1];
  int64_t &row_stride = strides[rank - 2], &col_stride = strides[rank - 1];
  if (cols == 1) col_stride = row_stride == 1 && rows > 1 ? rows : 1;
  if (rows == 1) row_stride = col_stride == 1 ? std::max<int64_t>(cols, 1) : 1;
}

int AxisOfFp8Sums(int operand, const TensorType& type) {
  if (!IsFp8(type.dtype) || operand > 1) return -1;
  return type.rank() - (operand == 0 ? 1 : 2);
}

}  // namespace retrograd
