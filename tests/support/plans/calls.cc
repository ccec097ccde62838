#include "tests/support/plans/calls.h"

namespace retrograd {
namespace {

CallTensor TensorOf(const MatrixOperand& matrix, const std::vector<int64_t>& batch, int64_t rows,
                    int64_t cols, DType dtype) {
  CallTensor tensor{.value = matrix.value,
                    .offset = matrix.offset,
                    .shape = {batch.begin(), batch.end()},
                    .strides = matrix.batch_strides,
                    .dtype = dtype};
  tensor.shape.insert(tensor.shape.end(), {rows, cols});
  tensor.strides.insert(tensor.strides.end(), {matrix.row_stride, matrix.col_stride});
  return tensor;
}

}  // namespace

Call ToCall(const MatMulCall& m, ValueId previous) {
  Call call{.node = m.d.value.node, .op = Op::matmul};
  call.operands = {TensorOf(m.a, m.batch, m.m, m.k, m.in_dtype),
                   TensorOf(m.b, m.batch, m.k, m.n, m.in_dtype)};
  call.results = {TensorOf(m.d, m.batch, m.m, m.n, m.out_dtype)};
  if (m.accumulate) call.previous = previous;
  return call;
}

Call ToCall(const AttentionCall& attention, absl::Span<const DType> operand_dtypes) {
  Call call{.node = attention.node,
            .op = Op::attention_backward,
            .operands = attention.operands,
            .results = attention.results,
            .attributes = {{"scale", attention.scale},
                           {"causal", int64_t{attention.causal}},
                           {"dropout_p", attention.dropout_p},
                           {"variant", attention.variant}}};
  for (size_t i = 0; i < call.operands.size(); ++i) call.operands[i].dtype = operand_dtypes[i];
  for (CallTensor& result : call.results) result.dtype = attention.dtype;
  return call;
}

Call AddingMatMul(ValueId x, ValueId sum, ValueId previous) {
  return ToCall({.m = 4,
                 .n = 4,
                 .k = 4,
                 .a = {.value = x},
                 .b = {.value = x},
                 .d = {.value = sum},
                 .accumulate = true},
                previous);
}

}  // namespace retrograd
