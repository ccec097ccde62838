// Kernels whose rows are long enough for several blocks.
#ifndef RETROGRAD_TESTS_SUPPORT_KERNELS_WIDE_ROWS_H_
#define RETROGRAD_TESTS_SUPPORT_KERNELS_WIDE_ROWS_H_

#include "tests/support/kernels/kernel_ir_builder.h"

namespace retrograd {

// Two rounds that follow from each other: the largest of a row, and the sum of powers below it.
inline KernelIr WideSoftmax(DType t, int64_t rows, int64_t columns) {
  KernelIrBuilder b({rows, columns});
  const int64_t all = rows * columns;
  const IndexExpr at = A(0) * columns + A(1);
  const int x = b.Cast(b.Load(b.In(t, all), at), DType::kFp32);
  const int most = b.Reduce(Op::amax, x, AxisMask{2});
  const int power = b.Do(Op::exp, {b.Do(Op::sub, {x, most})});
  const int sum = b.Reduce(Op::sum, power, AxisMask{2});
  b.Store(b.Cast(b.Do(Op::div, {power, sum}), t), b.Out(t, all), at);
  b.Store(most, b.Out(DType::kFp32, rows), A(0));
  return b.Build();
}

// A norm's backward: two sums of a row, and two of each column, of which one is added to what is
// there.
inline KernelIr WideNorm(DType t, int64_t rows, int64_t columns) {
  KernelIrBuilder b({rows, columns});
  const int64_t all = rows * columns;
  const IndexExpr at = A(0) * columns + A(1);
  const int dy = b.Cast(b.Load(b.In(t, all), at), DType::kFp32);
  const int x = b.Cast(b.Load(b.In(t, all), at), DType::kFp32);
  const int scale = b.Load(b.In(DType::kFp32, rows), A(0));
  const int weight = b.Cast(b.Load(b.In(t, columns), A(1)), DType::kFp32);
  const int y = b.Do(Op::mul, {x, scale}), g = b.Do(Op::mul, {dy, weight});
  const int share = b.Constant(1.0 / columns, DType::kFp32);
  const int mean = b.Do(Op::mul, {b.Reduce(Op::sum, g, AxisMask{2}), share});
  const int dot = b.Do(Op::mul, {b.Reduce(Op::sum, b.Do(Op::mul, {g, y}), AxisMask{2}), share});
  const int inner = b.Do(Op::sub, {b.Do(Op::sub, {g, mean}), b.Do(Op::mul, {y, dot})});
  b.Store(b.Cast(b.Do(Op::mul, {scale, inner}), t), b.Out(t, all), at);
  const int before = b.Load(b.In(DType::kFp32, columns), A(1));
  const int dw = b.Reduce(Op::sum, b.Do(Op::mul, {dy, y}), AxisMask{1});
  b.Store(b.Do(Op::add, {dw, before}), b.Out(DType::kFp32, columns), A(1));
  b.Store(b.Cast(b.Reduce(Op::sum, dy, AxisMask{1}), t), b.Out(t, columns), A(1));
  return b.Build();
}

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_KERNELS_WIDE_ROWS_H_
