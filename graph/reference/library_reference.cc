#include "graph/reference/library_reference.h"

#include "graph/base/status.h"

namespace retrograd {
namespace {

struct Row {
  Op op;
  absl::Status (*evaluate)(const LibraryNode& node, absl::Span<double* const> out);
};

constexpr Row kRows[] = {
    {Op::matmul, EvaluateMatMul},
    {Op::attention_backward, EvaluateAttention},
    {Op::convolution, EvaluateConvolution},
    {Op::convolution_input_gradient, EvaluateConvolution},
    {Op::convolution_weight_gradient, EvaluateConvolution},
};

}  // namespace

absl::Status EvaluateLibrary(const LibraryNode& node, absl::Span<double* const> out) {
  for (const Row& row : kRows) {
    if (row.op == node.op) return row.evaluate(node, out);
  }
  RG_CHECK(false);
  return absl::OkStatus();
}

}  // namespace retrograd
