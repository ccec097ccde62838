// Kernels whose columns are folded, and whose rows wait for the results: what held_columns is for.
#ifndef RETROGRAD_TESTS_SUPPORT_KERNELS_COLUMNS_TO_HOLD_H_
#define RETROGRAD_TESTS_SUPPORT_KERNELS_COLUMNS_TO_HOLD_H_

#include "tests/support/kernels/kernel_ir_builder.h"

namespace retrograd {

// The buffer of ColumnSoftmax's maxima.
inline constexpr int kLargestOfSoftmax = 4;

// A softmax down the rows of each group, and its maxima: two rounds, whose results spread.
inline KernelIr ColumnSoftmax(DType t, int64_t groups, int64_t rows, int64_t columns) {
  KernelIrBuilder b({groups, rows, columns});
  const int64_t all = groups * rows * columns;
  const int x = b.In(t, all), bias = b.In(t, columns), w = b.In(t, rows);
  const int y = b.Out(t, all), m = b.Out(t, groups * columns);
  const IndexExpr at = A(0) * (rows * columns) + A(1) * columns + A(2);
  const int v =
      b.Do(Op::add, {b.Do(Op::mul, {b.Load(x, at), b.Load(w, A(1))}), b.Load(bias, A(2))});
  const int most = b.Reduce(Op::amax, v, AxisMask{2});
  const int e = b.Do(Op::exp, {b.Do(Op::sub, {v, most})});
  b.Store(b.Do(Op::div, {e, b.Reduce(Op::sum, e, AxisMask{2})}), y, at);
  b.Store(most, m, A(0) * columns + A(2));
  return b.Build();
}

// The backward of batch norm where channels lie side by side: two sums, dx added to what is there.
inline KernelIr BatchNormBackward(DType t, int64_t rows, int64_t columns) {
  KernelIrBuilder b({rows, columns});
  const int dy = b.In(t, rows * columns), x = b.In(t, rows * columns);
  const int mean = b.In(DType::kFp32, columns), rstd = b.In(DType::kFp32, columns);
  const int dx = b.Out(t, rows * columns), dw = b.Out(DType::kFp32, columns);
  const IndexExpr at = A(0) * columns + A(1);
  const int g = b.Cast(b.Load(dy, at), DType::kFp32);
  const int lr = b.Load(rstd, A(1));
  const int xhat =
      b.Do(Op::mul, {b.Do(Op::sub, {b.Cast(b.Load(x, at), DType::kFp32), b.Load(mean, A(1))}), lr});
  const int scale = b.Constant(1.0 / rows, DType::kFp32);
  const int sum = b.Reduce(Op::sum, g, AxisMask{1});
  const int dot = b.Reduce(Op::sum, b.Do(Op::mul, {g, xhat}), AxisMask{1});
  const int centred = b.Do(Op::sub, {g, b.Do(Op::mul, {sum, scale})});
  const int inner = b.Do(Op::sub, {centred, b.Do(Op::mul, {xhat, b.Do(Op::mul, {dot, scale})})});
  b.Store(b.Cast(b.Do(Op::mul, {lr, inner}), t), dx, at, StoreMode::kAdd);
  b.Store(dot, dw, A(1));
  return b.Build();
}

// Columns of x scaled by their largest magnitude: stored by columns, and a copy by rows.
inline KernelIr QuantisedColumns(DType t, DType to, int64_t groups, int64_t rows, int64_t columns) {
  KernelIrBuilder b({groups, columns, rows});
  const int64_t all = groups * rows * columns;
  const DType f32 = DType::kFp32;
  const int x = b.In(t, all), factor = b.In(f32, 1);
  const int y = b.Out(to, all), z = b.Out(t, all), s = b.Out(f32, groups * columns);
  const IndexExpr by_rows = A(0) * (rows * columns) + A(2) * columns + A(1);
  const int v = b.Do(Op::mul, {b.Cast(b.Load(x, by_rows), f32), b.Load(factor, IndexExpr())});
  const int most = b.Reduce(Op::amax, b.Do(Op::abs, {v}), AxisMask{4});
  const int scale =
      b.Do(Op::div, {b.Constant(448, f32), b.Do(Op::maximum, {most, b.Constant(1e-6, f32)})});
  const int scaled = b.Do(Op::mul, {v, scale});
  const int low = b.Do(Op::maximum, {scaled, b.Constant(-448, f32)});
  b.Store(b.Cast(b.Do(Op::minimum, {low, b.Constant(448, f32)}), to), y,
          A(0) * (rows * columns) + A(1) * rows + A(2));
  b.Store(b.Cast(b.Do(Op::mul, {v, b.Constant(0.5, f32)}), t), z, by_rows);
  b.Store(scale, s, A(0) * columns + A(1));
  return b.Build();
}

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_KERNELS_COLUMNS_TO_HOLD_H_
