#include "fusion/ops/matmul/matmul_call.h"

#include "graph/base/status.h"

namespace retrograd {
namespace {

MatrixOperand MatrixOf(const CallTensor& tensor) {
  const size_t batch = tensor.strides.size() - 2;
  return {.value = tensor.value,
          .offset = tensor.offset,
          .row_stride = tensor.strides[batch],
          .col_stride = tensor.strides[batch + 1],
          .batch_strides = {tensor.strides.begin(), tensor.strides.end() - 2}};
}

}  // namespace

MatMulCall MatMulOf(const Call& call) {
  RG_CHECK(call.op == Op::matmul && call.operands.size() == 2 && call.results.size() == 1);
  const Shape &a = call.operands[0].shape, &b = call.operands[1].shape;
  RG_CHECK(a.size() >= 2 && b.size() == a.size());
  return {.m = a[a.size() - 2],
          .n = b.back(),
          .k = a.back(),
          .batch = {a.begin(), a.end() - 2},
          .in_dtype = call.operands[0].dtype,
          .out_dtype = call.results[0].dtype,
          .a = MatrixOf(call.operands[0]),
          .b = MatrixOf(call.operands[1]),
          .d = MatrixOf(call.results[0]),
          .accumulate = call.previous.has_value(),
          .tf32 = call.tf32};
}

}  // namespace retrograd
