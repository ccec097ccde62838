// The row of matmul.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/ops/call_op.h"
#include "fusion/ops/matmul/matmul_call.h"
#include "fusion/ops/matmul/matmul_cost.h"
#include "fusion/ops/matmul/matrix_strides.h"

namespace retrograd {
namespace {

constexpr int64_t kTile = 128;  // rows and columns of the result that a block makes

Price PriceCall(const Call& call, const DeviceSpec& device, bool explain) {
  return PriceMatMul(MatMulOf(call), device, explain);
}

int64_t Blocks(const Call& call) {
  const MatMulCall m = MatMulOf(call);
  return CeilDiv(m.m, kTile) * CeilDiv(m.n, kTile) * Elements(m.batch);
}

std::string Describe(const Call& call) {
  const MatMulCall m = MatMulOf(call);
  std::string text = "matmul ";
  if (Elements(m.batch) != 1) absl::StrAppend(&text, Elements(m.batch), "x ");
  absl::StrAppendFormat(&text, "%dx%dx%d %s", m.m, m.n, m.k, Name(m.in_dtype));
  if (m.out_dtype != m.in_dtype) absl::StrAppend(&text, " into ", Name(m.out_dtype));
  if (m.accumulate) text += ", adds";
  return text;
}

CallSizes Sizes(const Call& call) {
  const MatMulCall m = MatMulOf(call);
  return {{"m", m.m}, {"n", m.n}, {"k", m.k}, {"batch", Elements(m.batch)}};
}

}  // namespace

const CallOp kMatMulCalls = {.op = Op::matmul,
                             .name = "matmul",
                             .reads = IsMatrix,
                             .stores = IsMatrix,
                             .normalize = NormalizeMatrix,
                             .lies_along = AxisOfFp8Sums,
                             .result_like = [](int) { return -1; },
                             .widens = true,
                             .adds = true,
                             .price = PriceCall,
                             .blocks = Blocks,
                             .work_kind = WorkKind::kMatMul,
                             .describe = Describe,
                             .sizes = Sizes};

}  // namespace retrograd
