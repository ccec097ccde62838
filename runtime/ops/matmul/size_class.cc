#include "runtime/ops/matmul/size_class.h"

#include <algorithm>
#include <bit>

namespace retrograd {
namespace {

// The matrix packed, in the order that it has; the batch outside of it where it is walked at all.
void Pack(int64_t rows, int64_t cols, const std::vector<int64_t>& batch, MatrixOperand* operand) {
  const bool by_rows = operand->col_stride == 1;
  operand->offset = 0;
  operand->row_stride = by_rows ? cols : 1;
  operand->col_stride = by_rows ? 1 : rows;
  int64_t stride = rows * cols;
  for (size_t axis = batch.size(); axis-- > 0;) {
    if (operand->batch_strides[axis] == 0) continue;
    operand->batch_strides[axis] = stride;
    stride *= batch[axis];
  }
}

}  // namespace

int64_t ExtentOfClass(int64_t extent) {
  if (extent < 64) return extent;
  const int64_t eights = extent / 8 * 8;
  const int64_t step = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(eights))) / 4;
  return (eights + step / 2) / step * step + extent % 8;
}

MatMulCall RepresentativeOf(const MatMulCall& call) {
  MatMulCall made = call;
  for (int64_t* extent : {&made.m, &made.n, &made.k}) *extent = ExtentOfClass(*extent);
  for (int64_t& extent : made.batch) extent = ExtentOfClass(extent);
  if (made == call) return call;
  Pack(made.m, made.k, made.batch, &made.a);
  Pack(made.k, made.n, made.batch, &made.b);
  Pack(made.m, made.n, made.batch, &made.d);
  return made;
}

}  // namespace retrograd
