// Kernels whose points each read many elements of a row of their own.
#ifndef RETROGRAD_TESTS_SUPPORT_KERNELS_ROWS_OF_POINTS_H_
#define RETROGRAD_TESTS_SUPPORT_KERNELS_ROWS_OF_POINTS_H_

#include "tests/support/kernels/kernel_ir_builder.h"

namespace retrograd {

struct RowShape {
  int64_t pitch = 0;  // elements from row to row
  int64_t first = 0;  // of a row, the elements that are read
  int64_t width = 0;
  int64_t step = 1;        // only each so many of them, and the last
  int64_t alignment = 16;  // of the tensor, in bytes
};

// A sum in which each element that is read has a weight of its own.
inline int SumOfRow(KernelIrBuilder& b, DType dtype, const std::vector<int64_t>& extents,
                    const RowShape& row) {
  int64_t points = 1;
  IndexExpr point;
  for (size_t a = extents.size(); a-- > 0;) {
    point.AddScaled(A(static_cast<int>(a)), points);
    points *= extents[a];
  }
  const int64_t elements = (points - 1) * row.pitch + row.first + row.width;
  const int x = b.In(dtype, elements, row.alignment);
  int sum = -1;
  for (int64_t c = 0; c < row.width; ++c) {
    if (c % row.step != 0 && c + 1 != row.width) continue;
    const int load = b.Load(x, point * row.pitch + IndexExpr::Constant(row.first + c));
    const int term =
        b.Do(Op::mul, {load, b.Constant(static_cast<double>(c % 7) / 4 - 0.75, dtype)});
    sum = sum < 0 ? term : b.Do(Op::add, {sum, term});
  }
  return sum;
}

// Beside rows, one tensor of an element a point, and one of a single element.
inline KernelIr RowsOfPoints(DType dtype, std::vector<int64_t> extents,
                             const std::vector<RowShape>& rows) {
  KernelIrBuilder b(extents);
  int64_t points = 1;
  IndexExpr point;
  for (size_t a = extents.size(); a-- > 0;) {
    point.AddScaled(A(static_cast<int>(a)), points);
    points *= extents[a];
  }
  int sum = b.Load(b.In(dtype, points), point);
  for (const RowShape& row : rows) {
    sum = b.Do(Op::add, {sum, SumOfRow(b, dtype, extents, row)});
  }
  const int scaled = b.Do(Op::mul, {sum, b.Load(b.In(dtype, 1), IndexExpr())});
  b.Store(sum, b.Out(dtype, points), point);
  b.Store(scaled, b.Out(dtype, 3 * points), point * 3 + IndexExpr::Constant(1));
  return b.Build();
}

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_KERNELS_ROWS_OF_POINTS_H_
