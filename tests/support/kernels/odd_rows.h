// Kernels whose rows may have any length, with accesses in the phase of what they store and out of
// it.
#ifndef RETROGRAD_TESTS_SUPPORT_KERNELS_ODD_ROWS_H_
#define RETROGRAD_TESTS_SUPPORT_KERNELS_ODD_ROWS_H_

#include "tests/support/kernels/kernel_ir_builder.h"

namespace retrograd {

inline constexpr int64_t kOddRows = 5;

// Two rounds over rows: what the second reads for the first time, an operand of each row and one of
// each column, results of two widths, one of them added to what stands there, and one of each row.
inline KernelIr TwoRounds(DType dtype, int64_t columns) {
  KernelIrBuilder b({kOddRows, columns});
  const int64_t all = kOddRows * columns;
  const IndexExpr at = A(0) * columns + A(1);
  const int dy = b.Load(b.In(dtype, all), at), y = b.Load(b.In(dtype, all), at);
  const int scale = b.Load(b.In(dtype, kOddRows), A(0));
  const int weight = b.Load(b.In(dtype, columns), A(1));
  const int sum = b.Reduce(Op::sum, b.Do(Op::mul, {dy, weight}), 2);
  const int z = b.Load(b.In(dtype, all, SizeBytes(dtype)), at);  // at any address
  const int v = b.Do(Op::add, {b.Do(Op::mul, {dy, sum}), b.Do(Op::mul, {y, scale})});
  b.Store(v, b.Out(dtype, all), at);
  b.Store(b.Do(Op::mul, {v, z}), b.Out(dtype, all), at, StoreMode::kAdd);
  b.Store(sum, b.Out(dtype, kOddRows), A(0));
  return b.Build();
}

// One round, which pieces of a row can share.
inline KernelIr OneRound(DType dtype, int64_t columns) {
  KernelIrBuilder b({kOddRows, columns});
  const int x = b.Load(b.In(dtype, kOddRows * columns), A(0) * columns + A(1));
  b.Store(b.Reduce(Op::sum, b.Do(Op::mul, {x, x}), 2), b.Out(dtype, kOddRows), A(0));
  return b.Build();
}

// Rows of one tensor at another pitch, behind a few elements and above a guard; a table's rows; a
// result that does not vary along the row.
inline KernelIr PassOverRows(DType dtype, int64_t columns) {
  KernelIrBuilder b({kOddRows, columns});
  const int64_t pitch = columns + 3;
  const int x = b.Load(b.In(dtype, kOddRows * columns), A(0) * columns + A(1));
  const int z = b.Load(b.In(dtype, kOddRows * pitch), A(0) * pitch + A(1) + IndexExpr::Constant(3));
  const int part = b.Load(b.In(dtype, kOddRows * columns), A(0) * columns + A(1),
                          {{A(1), columns / 3, columns}}, 2);
  const int index = b.Load(b.In(DType::kInt64, kOddRows), A(0));
  const int row = b.Gather(b.In(dtype, 4 * columns), A(1), index, columns, 4);
  const int scale = b.Load(b.In(dtype, kOddRows), A(0));
  const int looked_up = b.Do(Op::add, {b.Do(Op::add, {part, row}), scale});
  const int v = b.Do(Op::add, {b.Do(Op::add, {x, z}), looked_up});
  b.Store(v, b.Out(dtype, kOddRows * columns), A(0) * columns + A(1));
  b.Store(b.Do(Op::sub, {z, x}), b.Out(dtype, kOddRows * pitch),
          A(0) * pitch + A(1) + IndexExpr::Constant(1));
  b.Store(b.Do(Op::neg, {scale}), b.Out(dtype, kOddRows), A(0));
  return b.Build();
}

// All elements of a tensor, whatever their number.
inline KernelIr PassOverAll(DType dtype, int64_t elements) {
  KernelIrBuilder b({elements});
  const int x = b.Load(b.In(dtype, elements), A(0));
  b.Store(b.Do(Op::add, {x, b.Load(b.In(dtype, elements), A(0))}), b.Out(dtype, elements), A(0));
  return b.Build();
}

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_KERNELS_ODD_ROWS_H_
