// The row of matmul.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/ops/call_op.h"
#include "fusion/ops/matmul/matmul_call.h"
#include "fusion/ops/matmul/matmul_cost.h"

namespace retrograd {
namespace {

constexpr int64_t kTile = 128;  // rows and columns of the result that a block makes

// BLAS reads rows, or columns, of unit stride that do not overlap.
bool IsMatrix(absl::Span<const int64_t> shape, absl::Span<const int64_t> given) {
  const size_t rank = shape.size();
  if (rank < 2) return false;
  std::vector<int64_t> strides(given.begin(), given.end());
  kMatMulCalls.normalize(shape, strides);
  const int64_t rows = shape[rank - 2], cols = shape[rank - 1];
  const int64_t row_stride = strides[rank - 2], col_stride = strides[rank - 1];
  return (col_stride == 1 && row_stride >= std::max<int64_t>(cols, 1)) ||
         (row_stride == 1 && col_stride >= std::max<int64_t>(rows, 1));
}

// A stride along an extent of 1 becomes what a dense matrix would have.
void Normalize(absl::Span<const int64_t> shape, std::vector<int64_t>& strides) {
  const size_t rank = shape.size();
  const int64_t rows = shape[rank - 2], cols = shape[rank - 1];
  int64_t &row_stride = strides[rank - 2], &col_stride = strides[rank - 1];
  if (cols == 1) col_stride = row_stride == 1 && rows > 1 ? rows : 1;
  if (rows == 1) row_stride = col_stride == 1 ? std::max<int64_t>(cols, 1) : 1;
}

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
                             .normalize = Normalize,
                             .result_like = [](int) { return -1; },
                             .absorbs = true,
                             .price = PriceCall,
                             .blocks = Blocks,
                             .work_kind = WorkKind::kMatMul,
                             .describe = Describe,
                             .sizes = Sizes};

}  // namespace retrograd
