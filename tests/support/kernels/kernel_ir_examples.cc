#include "tests/support/kernels/kernel_ir_examples.h"

#include "graph/ir/sorted_indices.h"
#include "tests/support/kernels/columns_to_hold.h"
#include "tests/support/kernels/kernel_ir_builder.h"
#include "tests/support/kernels/odd_rows.h"
#include "tests/support/kernels/rows_of_points.h"
#include "tests/support/kernels/tiles_to_hold.h"

namespace retrograd {
namespace {

constexpr AxisMask kA0 = 1, kA1 = 2, kA2 = 4;

// y = tanh(x + bias) * scale[row]; z = the same rounded, plus 1.
KernelIr Elementwise(DType t) {
  KernelIrBuilder b({33, 40});
  const int x = b.In(t, 33 * 40), bias = b.In(t, 40), scale = b.In(t, 33);
  const int y = b.Out(t, 33 * 40), z = b.Out(DType::kFp32, 33 * 40);
  const int sum = b.Do(Op::add, {b.Load(x, A(0) * 40 + A(1)), b.Load(bias, A(1))});
  const int v = b.Do(Op::mul, {b.Do(Op::tanh, {sum}), b.Load(scale, A(0))});
  b.Store(v, y, A(0) * 40 + A(1));
  const int narrow = b.Cast(v, DType::kBf16);
  b.Store(b.Do(Op::add, {b.Cast(narrow, DType::kFp32), b.Constant(1, DType::kFp32)}), z,
          A(0) * 40 + A(1));
  return b.Build();
}

// cat of [12,16] and [12,24] along the last axis, and x read with an odd alignment and padding.
KernelIr Joined(DType t) {
  KernelIrBuilder b({12, 40});
  const int p = b.In(t, 12 * 16), q = b.In(t, 12 * 24), x = b.In(t, 12 * 40, SizeBytes(t));
  const int y = b.Out(t, 12 * 40);
  const Guard left{A(1), 0, 16}, right{A(1), 16, 40};
  const int lp = b.Load(p, A(0) * 16 + A(1), {left});
  const int lq = b.Load(q, A(0) * 24 + A(1) + IndexExpr::Constant(-16), {right});
  const int joined = b.Select({left}, lp, lq);
  const Guard inside{A(1) + IndexExpr::Constant(-3), 0, 37};
  const int padded = b.Load(x, A(0) * 40 + A(1) + IndexExpr::Constant(-3), {inside}, 2.5);
  b.Store(b.Do(Op::sub, {joined, padded}), y, A(0) * 40 + A(1));
  return b.Build();
}

// Heads merged: y[t, 8h + d] = x[h, t, d], with a mask and comparisons.
KernelIr Masked(DType t) {
  const std::vector<int64_t> extents = {10, 32};
  KernelIrBuilder b(extents);
  const int x = b.In(t, 320), y = b.Out(t, 320), mask = b.Out(DType::kBool, 320);
  const IndexExpr head = FloorDiv(A(1), 8, extents), lane = Mod(A(1), 8, extents);
  const int v = b.Load(x, head * 80 + A(0) * 8 + lane);
  const int row = b.Index(A(0), DType::kInt64), column = b.Index(A(1), DType::kInt64, -4, 1);
  const int keep = b.Do(Op::ge, {row, column});
  const int positive = b.Do(Op::gt, {v, b.Constant(0, t)});
  const int both = b.Do(Op::logical_and, {keep, positive});
  b.Store(b.Do(Op::where, {both, v, b.Constant(-2, t)}), y, A(0) * 32 + A(1));
  b.Store(both, mask, A(0) * 32 + A(1));
  return b.Build();
}

// Rows of a table, some counted from the end.
KernelIr Gathered(DType t) {
  KernelIrBuilder b({21, 16});
  const int table = b.In(t, 9 * 16), index = b.In(DType::kInt64, 21), y = b.Out(t, 21 * 16);
  const int i = b.Load(index, A(0));
  b.Store(b.Gather(table, A(1), i, 16, 9), y, A(0) * 16 + A(1));
  return b.Build();
}

KernelIr AddedTo(DType t) {
  KernelIrBuilder b({7, 24});
  const int x = b.In(t, 7 * 24), y = b.Out(t, 7 * 24);
  b.Store(b.Do(Op::neg, {b.Load(x, A(0) * 24 + A(1))}), y, A(0) * 24 + A(1), StoreMode::kAdd);
  return b.Build();
}

// dx = y (dy - sum(dy y)), and the sum itself.
KernelIr SoftmaxBackward(DType t, int64_t rows, int64_t columns) {
  KernelIrBuilder b({rows, columns});
  const int dy = b.In(t, rows * columns), y = b.In(t, rows * columns);
  const int dx = b.Out(t, rows * columns), s = b.Out(DType::kFp32, rows);
  const IndexExpr at = A(0) * columns + A(1);
  const int ldy = b.Load(dy, at), ly = b.Load(y, at);
  const int sum = b.Reduce(Op::sum, b.Do(Op::mul, {ldy, ly}), kA1);
  b.Store(b.Do(Op::mul, {ly, b.Do(Op::sub, {ldy, sum})}), dx, at);
  b.Store(b.Cast(sum, DType::kFp32), s, A(0));
  return b.Build();
}

// log softmax over rows with a bias per column: a maximum, then a sum.
KernelIr LogSoftmax(DType t) {
  KernelIrBuilder b({13, 72});
  const int x = b.In(t, 13 * 72), bias = b.In(t, 72), y = b.Out(t, 13 * 72), m = b.Out(t, 13);
  const int v = b.Do(Op::add, {b.Load(x, A(0) * 72 + A(1)), b.Load(bias, A(1))});
  const int most = b.Reduce(Op::amax, v, kA1);
  const int shifted = b.Do(Op::sub, {v, most});
  const int total = b.Reduce(Op::sum, b.Do(Op::exp, {shifted}), kA1);
  b.Store(b.Do(Op::sub, {shifted, b.Do(Op::log, {total})}), y, A(0) * 72 + A(1));
  b.Store(most, m, A(0));
  return b.Build();
}

// Over the first and the last axis, the middle one kept.
KernelIr OuterAndInner(DType t) {
  KernelIrBuilder b({6, 5, 16});
  const int x = b.In(t, 480), y = b.Out(t, 5);
  const int v = b.Load(x, A(0) * 80 + A(1) * 16 + A(2));
  b.Store(b.Reduce(Op::sum, b.Do(Op::mul, {v, v}), kA0 | kA2), y, A(1));
  return b.Build();
}

// Everything to one number: rows are too few, so it splits.
KernelIr Total(DType t) {
  KernelIrBuilder b({5000});
  const int x = b.In(t, 5000), y = b.Out(t, 1), z = b.Out(t, 5000);
  const int v = b.Load(x, A(0));
  b.Store(v, z, A(0) * -1 + IndexExpr::Constant(4999));
  const int mean = b.Do(Op::mul, {b.Reduce(Op::sum, v, kA0), b.Constant(1.0 / 5000, t)});
  b.Store(mean, y, IndexExpr());
  return b.Build();
}

// Integer extremes of rows.
KernelIr IntegerRows() {
  KernelIrBuilder b({9, 50});
  const int x = b.In(DType::kInt64, 450), y = b.Out(DType::kInt64, 9), z = b.Out(DType::kInt8, 9);
  const int v = b.Load(x, A(0) * 50 + A(1));
  b.Store(b.Reduce(Op::sum, v, kA1), y, A(0));
  b.Store(b.Reduce(Op::amin, b.Cast(v, DType::kInt8), kA1), z, A(0));
  return b.Build();
}

// Bias gradients: sums down the rows of dy and dy x, one rounded and scaled, and a copy beside.
KernelIr ColumnSums(DType t, int64_t rows, int64_t columns) {
  KernelIrBuilder b({rows, columns});
  const int dy = b.In(t, rows * columns), x = b.In(t, rows * columns), w = b.In(t, columns);
  const int db = b.Out(t, columns), dw = b.Out(DType::kFp32, columns);
  const int prod = b.Out(t, rows * columns);
  const IndexExpr at = A(0) * columns + A(1);
  const int ldy = b.Load(dy, at);
  const int p = b.Do(Op::mul, {ldy, b.Do(Op::mul, {b.Load(x, at), b.Load(w, A(1))})});
  b.Store(b.Reduce(Op::sum, ldy, kA0), db, A(1));
  const int sum = b.Reduce(Op::sum, b.Cast(p, DType::kFp32), kA0);
  b.Store(b.Do(Op::mul, {sum, b.Constant(0.5, DType::kFp32)}), dw, A(1));
  b.Store(p, prod, at);
  return b.Build();
}

// Column sums with the kept axes apart: axis 1 folded, 0 and 2 kept.
KernelIr MiddleSum(DType t) {
  KernelIrBuilder b({3, 29, 24});
  const int x = b.In(t, 3 * 29 * 24), y = b.Out(t, 72);
  const int v = b.Load(x, A(0) * (29 * 24) + A(1) * 24 + A(2));
  b.Store(b.Reduce(Op::amax, v, kA1), y, A(0) * 24 + A(2));
  return b.Build();
}

// The backward of rms_norm with weight: dx along rows, dw down columns, one pass.
KernelIr NormBackward(DType t, int64_t rows, int64_t columns) {
  KernelIrBuilder b({rows, columns});
  const int dy = b.In(t, rows * columns), x = b.In(t, rows * columns);
  const int rstd = b.In(DType::kFp32, rows), w = b.In(t, columns);
  const int dx = b.Out(t, rows * columns), dw = b.Out(t, columns),
            db = b.Out(DType::kFp32, columns), before = b.In(DType::kFp32, columns);
  const IndexExpr at = A(0) * columns + A(1);
  const int ldy = b.Cast(b.Load(dy, at), DType::kFp32), lr = b.Load(rstd, A(0));
  const int xhat = b.Do(Op::mul, {b.Cast(b.Load(x, at), DType::kFp32), lr});
  const int g = b.Do(Op::mul, {ldy, b.Cast(b.Load(w, A(1)), DType::kFp32)});
  const int sum = b.Reduce(Op::sum, b.Do(Op::mul, {g, xhat}), kA1);
  const int mean = b.Do(Op::mul, {sum, b.Constant(1.0 / columns, DType::kFp32)});
  const int inner = b.Do(Op::sub, {g, b.Do(Op::mul, {xhat, mean})});
  b.Store(b.Cast(b.Do(Op::mul, {lr, inner}), t), dx, at);
  b.Store(b.Cast(b.Reduce(Op::sum, b.Do(Op::mul, {ldy, xhat}), kA0), t), dw, A(1));
  // Depends on the row's sum too, and is added to what is there.
  const int shift = b.Reduce(Op::sum, b.Do(Op::mul, {ldy, mean}), kA0);
  b.Store(b.Do(Op::add, {shift, b.Load(before, A(1))}), db, A(1));
  return b.Build();
}

// y[i, j] = x[j, i] + bias[j], the tile's edges cut.
KernelIr Transposed(DType t) {
  KernelIrBuilder b({2, 50, 40});
  const int x = b.In(t, 4000), bias = b.In(t, 40), y = b.Out(t, 4000);
  const int v = b.Do(Op::add, {b.Load(x, A(0) * 2000 + A(2) * 50 + A(1)), b.Load(bias, A(2))});
  b.Store(v, y, A(0) * 2000 + A(1) * 40 + A(2));
  return b.Build();
}

// A gradient in two layouts, of which the second is stored along the other axis, as is a sum.
KernelIr StoredBothWays(DType t) {
  KernelIrBuilder b({2, 50, 40});
  const int x = b.In(t, 4000), dy = b.In(t, 4000), bias = b.In(t, 40);
  const int y = b.Out(t, 4000), z = b.Out(t, 4000);
  const IndexExpr along = A(0) * 2000 + A(1) * 40 + A(2), across = A(0) * 2000 + A(2) * 50 + A(1);
  const int v = b.Do(Op::add, {b.Load(x, along), b.Load(bias, A(2))});
  b.Store(v, y, along);
  b.Store(b.Do(Op::mul, {v, b.Load(dy, across)}), z, across);
  return b.Build();
}

// Nothing is read along the axis that everything is stored along.
KernelIr StoredAcross(DType t) {
  KernelIrBuilder b({3, 33, 47});
  const int x = b.In(t, 3 * 33 * 47), y = b.Out(t, 3 * 33 * 47);
  const int v = b.Do(Op::mul, {b.Load(x, A(0) * (33 * 47) + A(1) * 47 + A(2)), b.Constant(0.5, t)});
  b.Store(v, y, A(0) * (33 * 47) + A(2) * 33 + A(1));
  return b.Build();
}

// The same in wide tiles, whose edges are cut: a quantiser's result, and what it is made of.
KernelIr TransposedWide(DType t) {
  KernelIrBuilder b({3, 72, 176});
  const int64_t all = 3 * 72 * 176;
  const int x = b.In(t, all), scale = b.In(DType::kFp32, 3 * 72), bias = b.In(t, 176);
  const int y = b.Out(DType::kFp8E4M3, all), z = b.Out(t, all);
  const int v = b.Load(x, A(0) * (72 * 176) + A(2) * 72 + A(1));
  const int w = b.Do(Op::add, {b.Cast(v, DType::kFp32), b.Cast(b.Load(bias, A(2)), DType::kFp32)});
  const int scaled = b.Do(Op::mul, {w, b.Load(scale, A(0) * 72 + A(1))});
  const IndexExpr at = A(0) * (72 * 176) + A(1) * 176 + A(2);
  b.Store(b.Cast(scaled, DType::kFp8E4M3), y, at);
  b.Store(b.Cast(w, t), z, at);
  return b.Build();
}

// An embedding's gradient: rows of src added where the index says. Many rows share an index, so
// that their sums cross chunks; with a short table some indices fall outside.
KernelIr Scattered(DType t, int64_t outer, int64_t rows, int64_t inner, int64_t table_rows) {
  KernelIrBuilder b({outer, rows, inner});
  const SortedIndices order{.rows = table_rows, .indices = rows};
  const int src = b.In(t, outer * rows * inner);
  const int sorted = b.In(DType::kInt32, order.elements());
  const int table = b.Out(t, outer * table_rows * inner);
  const int v = b.Load(src, A(0) * (rows * inner) + A(1) * inner + A(2));
  b.Scatter({.sorted = sorted,
             .src_instr = b.Widen(b.Do(Op::mul, {v, b.Constant(0.5, t)}), kA0 | kA1 | kA2),
             .buffer = table,
             .row_axes = kA1,
             .table_rows = table_rows});
  return b.Build();
}

// Sums of a tensor in which there may be nothing.
KernelIr SumOf(DType t, int64_t rows, int64_t columns, AxisMask folded) {
  KernelIrBuilder b({rows, columns});
  const int64_t left = folded == kA0 ? columns : rows;
  const int x = b.In(t, rows * columns), y = b.Out(t, left);
  // Widened, as a stride of 0 names no axis.
  const int v = b.Widen(b.Load(x, A(0) * columns + A(1)), kA0 | kA1);
  b.Store(b.Reduce(Op::sum, v, folded), y, folded == kA0 ? A(1) : A(0));
  return b.Build();
}

// x repeats along the columns; its one total beside sums of columns.
KernelIr TotalBesideColumns(DType t, int64_t rows, int64_t columns) {
  KernelIrBuilder b({rows, columns});
  const int x = b.In(t, rows), dy = b.In(t, rows * columns);
  const int total = b.Out(t, 1), sums = b.Out(t, columns), scaled = b.Out(t, rows * columns);
  const IndexExpr at = A(0) * columns + A(1);
  const int once = b.Load(x, A(0)), ldy = b.Load(dy, at);
  b.Store(b.Reduce(Op::sum, once, kA0), total, IndexExpr());
  b.Store(b.Reduce(Op::sum, ldy, kA0), sums, A(1));
  b.Store(b.Do(Op::mul, {ldy, once}), scaled, at);
  return b.Build();
}

// The scan of half of x along an axis of [rows, columns], and less x.
KernelIr Scanned(DType t, int64_t rows, int64_t columns, AxisMask along, bool reverse) {
  KernelIrBuilder b({rows, columns});
  const int64_t all = rows * columns;
  const IndexExpr at = A(0) * columns + A(1);
  const int x = b.In(t, all), y = b.Out(t, all), z = b.Out(t, all);
  const int v = b.Load(x, at);
  const int scan = b.Scan(b.Do(Op::mul, {v, b.Constant(0.5, t)}), along, reverse);
  b.Store(scan, y, at);
  b.Store(b.Do(Op::sub, {scan, v}), z, at);
  return b.Build();
}

}  // namespace

std::vector<KernelExample> KernelExamples(DType t) {
  return {
      {"elementwise", Template::kPointwise, Elementwise(t)},
      {"joined", Template::kPointwise, Joined(t)},
      {"masked", Template::kPointwise, Masked(t)},
      {"gathered", Template::kPointwise, Gathered(t)},
      {"added to", Template::kPointwise, AddedTo(t)},
      {"softmax backward", Template::kRowReduction, SoftmaxBackward(t, 37, 96)},
      {"softmax backward, narrow", Template::kRowReduction, SoftmaxBackward(t, 5, 7)},
      {"softmax backward, wide", Template::kRowReduction, SoftmaxBackward(t, 3, 1200)},
      {"log softmax", Template::kRowReduction, LogSoftmax(t)},
      {"two rounds, odd rows", Template::kRowReduction, TwoRounds(t, 107)},
      {"one round, odd rows", Template::kRowReduction, OneRound(t, 2051)},
      {"pass, odd rows", Template::kPointwise, PassOverRows(t, 107)},
      {"pass, odd number", Template::kPointwise, PassOverAll(t, 1021)},
      {"rows of points", Template::kPointwise, RowsOfPoints(t, {333}, {{.pitch = 9, .width = 9}})},
      {"rows of points, parts of them", Template::kPointwise,
       RowsOfPoints(t, {14, 11},
                    {{.pitch = 16, .first = 3, .width = 9}, {.pitch = 3, .width = 3}})},
      {"outer and inner", Template::kRowReduction, OuterAndInner(t)},
      {"total", Template::kRowReduction, Total(t)},
      {"integer rows", Template::kRowReduction, IntegerRows()},
      {"column sums", Template::kColumnReduction, ColumnSums(t, 301, 48)},
      {"column sums, odd", Template::kColumnReduction, ColumnSums(t, 70, 33)},
      {"total beside columns", Template::kColumnReduction, TotalBesideColumns(t, 45, 24)},
      {"middle sum", Template::kColumnReduction, MiddleSum(t)},
      {"norm backward", Template::kRowColumn, NormBackward(t, 45, 64)},
      {"norm backward, wide", Template::kRowColumn, NormBackward(t, 11, 520)},
      {"softmax of columns", Template::kHeldColumns, ColumnSoftmax(t, 2, 150, 24)},
      {"softmax of columns, odd", Template::kHeldColumns, ColumnSoftmax(t, 3, 37, 7)},
      {"batch norm backward", Template::kHeldColumns, BatchNormBackward(t, 1030, 40)},
      {"quantised columns", Template::kHeldColumns,
       QuantisedColumns(t, DType::kFp8E4M3, 2, 1040, 24)},
      {"quantised columns, odd", Template::kHeldColumns, QuantisedColumns(t, t, 3, 52, 20)},
      {"softmax of no columns", Template::kHeldColumns, ColumnSoftmax(t, 0, 9, 24)},
      {"quantised both ways", Template::kHeldTiles,
       QuantisedBothWays(t, DType::kFp8E4M3, {.down = 2, .right = 3, .high = 64, .wide = 128})},
      {"quantised both ways, odd", Template::kHeldTiles,
       QuantisedBothWays(t, DType::kFp8E4M3, {.down = 3, .right = 2, .high = 37, .wide = 21})},
      {"quantised both ways, ragged", Template::kHeldTiles,
       QuantisedBothWays(t, t, {.down = 1, .right = 2, .high = 20, .wide = 40})},
      {"quantised squares", Template::kHeldTiles,
       QuantisedSquares(t, DType::kFp8E4M3, {.down = 2, .right = 2, .high = 128, .wide = 64})},
      {"centred twice", Template::kHeldTiles, CentredTwice(t, 3, 40, 72)},
      {"centred twice, odd", Template::kHeldTiles, CentredTwice(t, 2, 12, 13)},
      {"transposed", Template::kTranspose, Transposed(t)},
      {"stored both ways", Template::kTranspose, StoredBothWays(t)},
      {"stored across", Template::kTranspose, StoredAcross(t)},
      {"transposed in wide tiles", Template::kTranspose, TransposedWide(t)},
      {"scattered", Template::kScatterAdd, Scattered(t, 1, 1000, 12, 30)},
      {"scattered, short table", Template::kScatterAdd, Scattered(t, 3, 150, 5, 6)},
      {"sum of no rows", Template::kColumnReduction, SumOf(t, 0, 24, kA0)},
      {"sums of empty rows", Template::kColumnReduction, SumOf(t, 24, 0, kA1)},
      {"no sums", Template::kRowReduction, SumOf(t, 0, 24, kA1)},
      {"scanned rows", Template::kScan, Scanned(t, 5, 300, kA1, false)},
      {"scanned rows, backwards", Template::kScan, Scanned(t, 37, 45, kA1, true)},
      {"scanned columns", Template::kScan, Scanned(t, 70, 33, kA0, false)},
      {"scanned columns, backwards", Template::kScan, Scanned(t, 9, 600, kA0, true)},
  };
}

}  // namespace retrograd
