#include "runtime/ops/matmul/matmul_class.h"

#include <cstdint>
#include <vector>

#include "runtime/tuning/extent_class.h"

namespace retrograd {
namespace {

// Elements; libraries make no use of more.
constexpr int64_t kMostAlignment = 8;

// Along which axes some matrix is contiguous: lines of these lengths follow each other in memory,
// so that the lengths decide where lines begin.
struct ContiguousAxes {
  bool m = false, n = false, k = false;
};

ContiguousAxes ContiguousAxesOf(const MatMulCall& call) {
  const auto by_rows = [](const MatrixOperand& operand) { return operand.col_stride == 1; };
  return {.m = !by_rows(call.a) || !by_rows(call.d),
          .n = by_rows(call.b) || by_rows(call.d),
          .k = by_rows(call.a) || !by_rows(call.b)};
}

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

MatMulCall RepresentativeOf(const MatMulCall& call) {
  MatMulCall made = call;
  const ContiguousAxes contiguous = ContiguousAxesOf(call);
  const auto of_class = [](int64_t extent, bool aligns) {
    return LargestOfClass(extent, aligns ? kMostAlignment : 1);
  };
  made.m = of_class(call.m, contiguous.m);
  made.n = of_class(call.n, contiguous.n);
  made.k = of_class(call.k, contiguous.k);
  for (int64_t& extent : made.batch) extent = of_class(extent, false);
  if (made == call) return call;
  Pack(made.m, made.k, made.batch, &made.a);
  Pack(made.k, made.n, made.batch, &made.b);
  Pack(made.m, made.n, made.batch, &made.d);
  return made;
}

}  // namespace retrograd
