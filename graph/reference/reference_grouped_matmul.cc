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
