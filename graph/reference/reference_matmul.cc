// matmul of the reference evaluator, also over magnitudes.
#include <algorithm>

#include "graph/reference/library_reference.h"

namespace retrograd {
namespace {

void Multiply(const DenseTensor& a, const DenseTensor& b, const TensorType& result, double* out) {
  const int rank = result.rank();
  const int64_t m = result.shape[rank - 2], n = result.shape[rank - 1];
  const int64_t k = a.type->shape.back();
  const int64_t batches = m * n == 0 ? 0 : result.elements() / (m * n);
  std::fill(out, out + result.elements(), 0.0);
  for (int64_t batch = 0; batch < batches; ++batch) {
    const double* left = a.data + batch * m * k;
    const double* right = b.data + batch * k * n;
    double* target = out + batch * m * n;
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t p = 0; p < k; ++p) {
        const double factor = left[i * k + p];
        for (int64_t j = 0; j < n; ++j) target[i * n + j] += factor * right[p * n + j];
      }
    }
  }
}

}  // namespace

absl::Status EvaluateMatMul(const LibraryNode& node, absl::Span<double* const> out) {
  Multiply(node.operands[0], node.operands[1], node.results[0], out[0]);
  return absl::OkStatus();
}

}  // namespace retrograd
