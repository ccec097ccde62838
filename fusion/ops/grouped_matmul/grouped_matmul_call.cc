#include "fusion/ops/grouped_matmul/grouped_matmul_call.h"

#include "fusion/kernel/ir/scale.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

GroupedMatrix MatrixOf(const CallTensor& tensor) {
  const size_t rank = tensor.strides.size();
  return {.offset = tensor.offset,
          .group_stride = rank == 3 ? tensor.strides[0] : 0,
          .row_stride = tensor.strides[rank - 2],
          .col_stride = tensor.strides[rank - 1]};
}

GroupedScales ScalesOf(const CallTensor& tensor) {
  const size_t rank = tensor.strides.size();
  return {.offset = tensor.offset,
          .group_stride = rank == 2 ? tensor.strides[0] : 0,
          .stride = tensor.strides[rank - 1]};
}

}  // namespace

GroupedMatMulCall GroupedMatMulOf(const Call& call) {
  RG_CHECK(call.op == Op::grouped_matmul && call.operands.size() >= 3 && call.results.size() == 1);
  const CallTensor &a = call.operands[0], &b = call.operands[1], &ends = call.operands[2];
  GroupedMatMulCall made = {.sums_in_groups = b.shape.size() == 2,
                            .groups = ends.shape[0],
                            .m = a.shape[0],
                            .n = b.shape.back(),
                            .k = a.shape[1],
                            .in_dtype = a.dtype,
                            .out_dtype = call.results[0].dtype,
                            .a = MatrixOf(a),
                            .b = MatrixOf(b),
                            .d = MatrixOf(call.results[0]),
                            .ends_offset = ends.offset,
                            .adds = call.previous.has_value()};
  if (call.operands.size() == 5) {
    made.scaled = true;
    made.row_scales = ScalesOf(call.operands[3]);
    made.column_scales = ScalesOf(call.operands[4]);
  }
  return made;
}

MatMulCall AsEvenMatMuls(const GroupedMatMulCall& c) {
  const int64_t each = c.groups == 0 ? 0 : CeilDiv(c.grouped(), c.groups);
  return {.m = c.sums_in_groups ? c.m : each,
          .n = c.n,
          .k = c.sums_in_groups ? each : c.k,
          .batch = {c.groups},
          .in_dtype = c.in_dtype,
          .out_dtype = c.out_dtype};
}

}  // namespace retrograd
