#include "runtime/ops/matmul/blas_operands.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace retrograd {
namespace {

// Beyond so many separate matrices a kernel that takes any strides is better.
constexpr int64_t kMostParts = 64;

const MatrixOperand& Operand(const MatMulCall& call, int operand) {
  return operand == 0 ? call.a : operand == 1 ? call.b : call.d;
}

// Without a value: neither rows nor columns are consecutive.
std::optional<ColumnMatrix> AsColumns(int64_t rows, int64_t cols, int64_t row_stride,
                                      int64_t col_stride) {
  if ((rows <= 1 || row_stride == 1) && (cols <= 1 || col_stride >= std::max<int64_t>(rows, 1))) {
    return ColumnMatrix{false, rows, cols, cols <= 1 ? rows : col_stride, 0};
  }
  if ((cols <= 1 || col_stride == 1) && (rows <= 1 || row_stride >= std::max<int64_t>(cols, 1))) {
    return ColumnMatrix{true, cols, rows, rows <= 1 ? cols : row_stride, 0};
  }
  return std::nullopt;
}

// The batch as one strided axis of the library's, repeated at some places.
struct Batch {
  int64_t count = 1;
  int64_t strides[3] = {};                    // of a, b and d, in elements
  std::vector<std::array<int64_t, 3>> parts;  // offsets of a, b and d
};

Batch SplitBatch(const MatMulCall& call) {
  struct Axis {
    int64_t extent;
    std::array<int64_t, 3> strides;
  };
  std::vector<Axis> axes;  // outermost first, those that are one walk joined
  for (size_t i = 0; i < call.batch.size(); ++i) {
    if (call.batch[i] == 1) continue;
    const Axis axis = {call.batch[i],
                       {call.a.batch_strides[i], call.b.batch_strides[i], call.d.batch_strides[i]}};
    bool joined = !axes.empty();
    for (int o = 0; joined && o < 3; ++o) {
      joined = axes.back().strides[o] == axis.strides[o] * axis.extent;
    }
    if (joined) {
      axes.back() = {axes.back().extent * axis.extent, axis.strides};
    } else {
      axes.push_back(axis);
    }
  }
  Batch batch;
  batch.parts = {{0, 0, 0}};
  if (axes.empty()) return batch;
  // The longest axis is the library's.
  const auto longest = std::max_element(
      axes.begin(), axes.end(), [](const Axis& a, const Axis& b) { return a.extent < b.extent; });
  batch.count = longest->extent;
  std::copy(longest->strides.begin(), longest->strides.end(), batch.strides);
  axes.erase(longest);
  for (const Axis& axis : axes) {
    std::vector<std::array<int64_t, 3>> all;
    for (const auto& part : batch.parts) {
      for (int64_t i = 0; i < axis.extent && static_cast<int64_t>(all.size()) <= kMostParts; ++i) {
        all.push_back({part[0] + i * axis.strides[0], part[1] + i * axis.strides[1],
                       part[2] + i * axis.strides[2]});
      }
    }
    batch.parts = std::move(all);
  }
  return batch;
}

}  // namespace

std::string Describe(const MatMulCall& call) {
  return absl::StrFormat(
      "matmul %dx%dx%d%s, %s to %s", call.m, call.n, call.k,
      call.batch.empty() ? "" : absl::StrCat(", batch ", absl::StrJoin(call.batch, "x")),
      Name(call.in_dtype), Name(call.out_dtype));
}

absl::StatusOr<ColumnMatMul> InColumns(const MatMulCall& call) {
  const auto refused = [&call](absl::string_view why) {
    return absl::UnimplementedError(absl::StrCat(Describe(call), ": ", why));
  };
  const Batch batch = SplitBatch(call);
  if (static_cast<int64_t>(batch.parts.size()) > kMostParts ||
      batch.count > std::numeric_limits<int32_t>::max()) {
    return refused("the batch is no single walk through memory");
  }
  const std::optional<ColumnMatrix> result =
      AsColumns(call.m, call.n, call.d.row_stride, call.d.col_stride);
  if (!result) return refused("the result has neither rows nor columns together");
  const bool swapped = result->transposed;
  const std::optional<ColumnMatrix> left =
      swapped ? AsColumns(call.n, call.k, call.b.col_stride, call.b.row_stride)
              : AsColumns(call.m, call.k, call.a.row_stride, call.a.col_stride);
  const std::optional<ColumnMatrix> right =
      swapped ? AsColumns(call.k, call.m, call.a.col_stride, call.a.row_stride)
              : AsColumns(call.k, call.n, call.b.row_stride, call.b.col_stride);
  if (!left || !right) return refused("an operand has neither rows nor columns together");
  ColumnMatMul columns{.swapped = swapped,
                       .left = *left,
                       .right = *right,
                       .result = *result,
                       .batch = batch.count,
                       .parts = batch.parts};
  columns.left.stride = batch.strides[swapped ? 1 : 0];
  columns.right.stride = batch.strides[swapped ? 0 : 1];
  columns.result.stride = batch.strides[2];
  columns.result.transposed = false;
  return columns;
}

std::string MatMulKey(const MatMulCall& call, const MatMulFacts& facts) {
  std::string key =
      absl::StrCat(Describe(call), call.accumulate ? " +=" : "", facts.allow_tf32 ? " tf32" : "");
  const int64_t alignments[] = {facts.a_alignment, facts.b_alignment, facts.d_alignment};
  for (int i = 0; i < 3; ++i) {
    const MatrixOperand& o = Operand(call, i);
    absl::StrAppend(&key, " [", o.row_stride, " ", o.col_stride, " ",
                    absl::StrJoin(o.batch_strides, " "), " /",
                    OperandAlignment(call, i, alignments[i]), "]");
  }
  return key;
}

uint32_t OperandAlignment(const MatMulCall& call, int operand, int64_t alignment) {
  const int64_t bytes = SizeBytes(operand == 2 ? call.out_dtype : call.in_dtype);
  int64_t known = std::gcd(alignment, Operand(call, operand).offset * bytes);
  for (const auto& part : SplitBatch(call).parts) known = std::gcd(known, part[operand] * bytes);
  return static_cast<uint32_t>(std::clamp<int64_t>(known & -known, 1, 256));
}

int64_t OperandSpan(const MatMulCall& call, int operand) {
  const MatrixOperand& o = Operand(call, operand);
  const int64_t rows = operand == 1 ? call.k : call.m, cols = operand == 0 ? call.k : call.n;
  int64_t span = 1 + (rows - 1) * o.row_stride + (cols - 1) * o.col_stride;
  for (size_t i = 0; i < call.batch.size(); ++i) span += (call.batch[i] - 1) * o.batch_strides[i];
  return std::max<int64_t>(span, 1);
}

}  // namespace retrograd
