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

// Of blocks: [rows, blocks of terms], and [groups, blocks of terms, columns].
GroupedScales RowBlocksOf(const CallTensor& t, int64_t m, int64_t block) {
  return {.offset = t.offset,
          .stride = t.strides[0],
          .block_stride = t.strides[1],
          .lines = t.shape[0] == m ? 1 : block};
}

GroupedScales ColumnBlocksOf(const CallTensor& t, int64_t n, int64_t block) {
  return {.offset = t.offset,
          .group_stride = t.shape[0] == 1 ? 0 : t.strides[0],
          .stride = t.strides[2],
          .block_stride = t.strides[1],
          .lines = t.shape[2] == n ? 1 : block};
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
    made.scale_block = call.attributes.Int("scale_block");
    const CallTensor &rows = call.operands[3], &columns = call.operands[4];
    const int64_t block = made.scale_block;
    made.row_scales = block > 0 ? RowBlocksOf(rows, made.m, block) : ScalesOf(rows);
    made.column_scales = block > 0 ? ColumnBlocksOf(columns, made.n, block) : ScalesOf(columns);
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
