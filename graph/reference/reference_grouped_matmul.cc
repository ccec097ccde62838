// grouped_matmul of the reference evaluator, also over magnitudes.
#include <algorithm>

#include "graph/ir/group_ends.h"
#include "graph/reference/library_reference.h"

namespace retrograd {
namespace {

// out[i * n + j] += the sum over k of a[i * a_row + k] * b[k * n + j].
void AddProduct(const double* a, int64_t a_row, const double* b, int64_t m, int64_t n,
                int64_t terms, double* out) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t k = 0; k < terms; ++k) {
      const double factor = a[i * a_row + k];
      for (int64_t j = 0; j < n; ++j) out[i * n + j] += factor * b[k * n + j];
    }
  }
}

// Rows of the result, the first of which has scale `first`, of one group.
void ScaleOf(const LibraryNode& node, int64_t first, int64_t group, int64_t rows, int64_t n,
             double* out) {
  if (node.operands.size() == 3) return;
  const double* of_rows = node.operands[3].data + first;
  const double* of_columns = node.operands[4].data + group * n;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < n; ++j) out[i * n + j] = out[i * n + j] * of_rows[i] * of_columns[j];
  }
}

// Scales of the blocks of both operands, by row and term and by term and column.
struct BlockScales {
  const LibraryNode& node;
  int64_t block, rows_each, columns_each;

  explicit BlockScales(const LibraryNode& n)
      : node(n),
        block(n.attrs.Int("scale_block")),
        rows_each(n.operands[3].type->shape[0] == n.operands[0].type->shape[0] ? 1 : block),
        columns_each(n.operands[4].type->shape[2] == n.operands[1].type->shape.back() ? 1 : block) {
  }
  double OfRow(int64_t row, int64_t term) const {
    const DenseTensor& scales = node.operands[3];
    return scales.data[row / rows_each * scales.type->shape[1] + term / block];
  }
  double OfColumn(int64_t group, int64_t term, int64_t column) const {
    const DenseTensor& scales = node.operands[4];
    const Shape& shape = scales.type->shape;
    return scales.data[(group * shape[1] + term / block) * shape[2] + column / columns_each];
  }
};

// Of a group's rows and terms, from the first ones on, of the operands as they are scaled.
void AddScaledProduct(const LibraryNode& node, int64_t group, int64_t row0, int64_t rows,
                      int64_t term0, int64_t terms, double* out) {
  const BlockScales scales(node);
  const DenseTensor &a = node.operands[0], &b = node.operands[1];
  const int64_t k = a.type->shape[1], n = b.type->shape.back();
  const int64_t matrix = b.type->rank() == 3 ? group : 0;
  const double* const of_group = b.data + matrix * k * n;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t t = term0; t < term0 + terms; ++t) {
      const double factor = a.data[(row0 + i) * k + t] * scales.OfRow(row0 + i, t);
      for (int64_t j = 0; j < n; ++j) {
        out[i * n + j] += factor * (of_group[t * n + j] * scales.OfColumn(matrix, t, j));
      }
    }
  }
}

}  // namespace

absl::Status EvaluateGroupedMatMul(const LibraryNode& node, absl::Span<double* const> out) {
  const DenseTensor &a = node.operands[0], &b = node.operands[1], &ends = node.exact[2];
  const bool rows = b.type->rank() == 3;
  const int64_t m = a.type->shape[0], k = a.type->shape[1], n = b.type->shape.back();
  const int64_t size = rows ? m : k;
  std::fill(out[0], out[0] + node.results[0].elements(), 0.0);
  GroupSpan group;
  for (int64_t g = 0; g < ends.type->elements(); ++g) {
    group = NextGroup(group, static_cast<int64_t>(ends.data[g]), size);
    const int64_t members = group.end - group.begin;
    if (node.attrs.Find("scale_block") != nullptr) {
      AddScaledProduct(node, g, rows ? group.begin : 0, rows ? members : m, rows ? 0 : group.begin,
                       rows ? k : members, out[0] + (rows ? group.begin * n : g * m * n));
      continue;
    }
    if (rows) {
      AddProduct(a.data + group.begin * k, k, b.data + g * k * n, members, n, k,
                 out[0] + group.begin * n);
      ScaleOf(node, group.begin, g, members, n, out[0] + group.begin * n);
    } else {
      AddProduct(a.data + group.begin, k, b.data + group.begin * n, m, n, members,
                 out[0] + g * m * n);
      ScaleOf(node, g * m, g, m, n, out[0] + g * m * n);
    }
  }
  return absl::OkStatus();
}

}  // namespace retrograd
