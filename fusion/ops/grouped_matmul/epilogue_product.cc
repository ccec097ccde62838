#include "fusion/ops/grouped_matmul/epilogue_product.h"

#include "fusion/ops/grouped_matmul/grouped_multiplier.h"
#include "fusion/ops/matmul/gemm_tile_legality.h"

namespace retrograd {
namespace {

MatrixOperand OperandOf(ValueId value, const GroupedMatrix& matrix) {
  return {.value = value,
          .offset = matrix.offset,
          .row_stride = matrix.row_stride,
          .col_stride = matrix.col_stride};
}

}  // namespace

std::optional<EpilogueProduct> EpilogueProductOf(const Call& call) {
  if (call.previous) return std::nullopt;
  if (call.op == Op::matmul) return EpilogueProduct{.matmul = MatMulOf(call)};
  if (call.op != Op::grouped_matmul) return std::nullopt;
  const GroupedMatMulCall c = GroupedMatMulOf(call);
  if (c.sums_in_groups || c.scaled) return std::nullopt;
  return EpilogueProduct{.matmul = {.m = c.m,
                                    .n = c.n,
                                    .k = c.k,
                                    .in_dtype = c.in_dtype,
                                    .out_dtype = c.out_dtype,
                                    .a = OperandOf(call.operands[0].value, c.a),
                                    .b = OperandOf(call.operands[1].value, c.b),
                                    .d = OperandOf(call.results[0].value, c.d)},
                         .groups = c,
                         .ends = call.operands[2].value};
}

std::string WhyNoTiles(const BackwardGraph& graph, const EpilogueProduct& product) {
  std::string why = WhyNoTiles(graph, product.matmul);
  if (!why.empty() || !product.groups) return why;
  // The check above says that addresses are aligned.
  return WhyNoMultiplier(*product.groups,
                         {.a = kCopiedBytes, .b = kCopiedBytes, .d = kCopiedBytes});
}

}  // namespace retrograd
