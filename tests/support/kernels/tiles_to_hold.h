// Kernels whose reductions fold two axes, each or both: what held_tiles is for.
#ifndef RETROGRAD_TESTS_SUPPORT_KERNELS_TILES_TO_HOLD_H_
#define RETROGRAD_TESTS_SUPPORT_KERNELS_TILES_TO_HOLD_H_

#include "tests/support/kernels/kernel_ir_builder.h"

namespace retrograd {

// A matrix of rows x columns in blocks of `high` x `wide`: how many in each direction.
struct BlocksOfMatrix {
  int64_t down = 1, right = 1, high = 1, wide = 1;
  int64_t all() const { return down * right * high * wide; }
};

// y = x * scale, within +-448, where the scale is of a reduction's largest magnitude.
inline int ScaledBy(KernelIrBuilder& b, int v, int largest, DType to, int* scale) {
  const DType f32 = DType::kFp32;
  *scale =
      b.Do(Op::div, {b.Constant(448, f32), b.Do(Op::maximum, {largest, b.Constant(1e-6, f32)})});
  const int low = b.Do(Op::maximum, {b.Do(Op::mul, {v, *scale}), b.Constant(-448, f32)});
  return b.Cast(b.Do(Op::minimum, {low, b.Constant(448, f32)}), to);
}

// Axes: blocks down, rows of one, blocks to the right, columns of one.
inline IndexExpr ByRows(const BlocksOfMatrix& m) {
  return A(0) * (m.high * m.right * m.wide) + A(1) * (m.right * m.wide) + A(2) * m.wide + A(3);
}
inline IndexExpr ByColumns(const BlocksOfMatrix& m) {
  return A(2) * (m.wide * m.down * m.high) + A(3) * (m.down * m.high) + A(0) * m.high + A(1);
}

// Rows of blocks scaled by their largest magnitudes, and columns of blocks, stored as the
// transpose.
inline KernelIr QuantisedBothWays(DType t, DType to, BlocksOfMatrix m) {
  KernelIrBuilder b({m.down, m.high, m.right, m.wide});
  const DType f32 = DType::kFp32;
  const int x = b.In(t, m.all());
  const int y = b.Out(to, m.all()), turned = b.Out(to, m.all());
  const int s = b.Out(f32, m.all() / m.wide), z = b.Out(f32, m.all() / m.high);
  const int v = b.Cast(b.Load(x, ByRows(m)), f32), size = b.Do(Op::abs, {v});
  int of_rows = 0, of_columns = 0;
  b.Store(ScaledBy(b, v, b.Reduce(Op::amax, size, AxisMask{8}), to, &of_rows), y, ByRows(m));
  b.Store(ScaledBy(b, v, b.Reduce(Op::amax, size, AxisMask{2}), to, &of_columns), turned,
          ByColumns(m));
  b.Store(of_rows, s, A(0) * (m.high * m.right) + A(1) * m.right + A(2));
  b.Store(b.Do(Op::reciprocal, {of_columns}), z, A(0) * (m.right * m.wide) + A(2) * m.wide + A(3));
  return b.Build();
}

// Squares scaled by their largest magnitudes, stored as the transpose alone.
inline KernelIr QuantisedSquares(DType t, DType to, BlocksOfMatrix m) {
  KernelIrBuilder b({m.right, m.wide, m.down, m.high});
  const DType f32 = DType::kFp32;
  const IndexExpr by_rows =
      A(2) * (m.high * m.right * m.wide) + A(3) * (m.right * m.wide) + A(0) * m.wide + A(1);
  const IndexExpr by_columns =
      A(0) * (m.wide * m.down * m.high) + A(1) * (m.down * m.high) + A(2) * m.high + A(3);
  const int x = b.In(t, m.all()), y = b.Out(to, m.all()), s = b.Out(f32, m.down * m.right);
  const int v = b.Cast(b.Load(x, by_rows), f32);
  int scale = 0;
  const int most = b.Reduce(Op::amax, b.Do(Op::abs, {v}), AxisMask{2 | 8});
  b.Store(ScaledBy(b, v, most, to, &scale), y, by_columns);
  b.Store(scale, s, A(0) * m.down + A(2));
  return b.Build();
}

// Three rounds: sums of rows, what they leave of columns, and the total of that; a weight of each
// row, one of each column, and a result that is added to what is there.
inline KernelIr CentredTwice(DType t, int64_t tiles, int64_t rows, int64_t columns) {
  KernelIrBuilder b({tiles, rows, columns});
  const DType f32 = DType::kFp32;
  const int64_t all = tiles * rows * columns;
  const int x = b.In(t, all), w = b.In(t, rows), bias = b.In(f32, columns);
  const int y = b.Out(f32, all), sums = b.Out(f32, tiles * rows), total = b.Out(f32, tiles);
  const IndexExpr at = A(0) * (rows * columns) + A(1) * columns + A(2);
  const int v = b.Do(Op::mul, {b.Cast(b.Load(x, at), f32), b.Cast(b.Load(w, A(1)), f32)});
  const int row = b.Reduce(Op::sum, v, AxisMask{4});
  const int mean = b.Do(Op::mul, {row, b.Constant(1.0 / columns, f32)});
  const int c = b.Do(Op::sub, {v, mean});
  const int column = b.Reduce(Op::sum, c, AxisMask{2});
  const int shifted = b.Do(Op::add, {column, b.Load(bias, A(2))});
  const int d = b.Do(Op::sub, {c, b.Do(Op::mul, {shifted, b.Constant(1.0 / rows, f32)})});
  const int square = b.Reduce(Op::sum, b.Do(Op::mul, {d, d}), AxisMask{6});
  const int norm = b.Do(Op::rsqrt, {b.Do(Op::add, {square, b.Constant(1, f32)})});
  b.Store(b.Do(Op::mul, {d, norm}), y, at, StoreMode::kAdd);
  b.Store(b.Do(Op::mul, {mean, norm}), sums, A(0) * rows + A(1));
  b.Store(norm, total, A(0));
  return b.Build();
}

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_KERNELS_TILES_TO_HOLD_H_
