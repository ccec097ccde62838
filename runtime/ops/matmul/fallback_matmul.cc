#include "runtime/ops/matmul/fallback_matmul.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "codegen/print/dialect.h"
#include "codegen/print/numbers/sized_number.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

constexpr int kThreads = 128;

// Where an operand's matrix of the batch begins, in terms of b0, b1, ...
std::string Begin(const MatrixOperand& operand) {
  std::string text = absl::StrCat("int64_t(", Sized(operand.offset), ")");
  for (size_t i = 0; i < operand.batch_strides.size(); ++i) {
    absl::StrAppend(&text, " + b", i, " * int64_t(", Sized(operand.batch_strides[i]), ")");
  }
  return text;
}

std::string At(absl::string_view begin, const MatrixOperand& operand, absl::string_view row,
               absl::string_view col) {
  return absl::StrFormat("%s + %s * int64_t(%s) + %s * int64_t(%s)", begin, row,
                         Sized(operand.row_stride), col, Sized(operand.col_stride));
}

std::vector<Declaration> Arguments(const MatMulCall& call) {
  const std::string in = absl::StrCat("const ", StorageName(call.in_dtype));
  return {{.type = in, .name = "a", .at = 0},
          {.type = in, .name = "b", .at = 1},
          {.type = std::string(StorageName(call.out_dtype)), .name = "d", .at = 2}};
}

std::string Statements(const MatMulCall& call, int64_t elements) {
  const bool wide = call.in_dtype == DType::kFp64 || call.out_dtype == DType::kFp64;
  const absl::string_view sum = wide ? "double" : "float";
  const std::string m = Sized(call.m), n = Sized(call.n);
  std::string text = absl::StrFormat(
      "  const int64_t i = static_cast<int64_t>(RG_BLOCK) * %d + RG_THREAD;\n"
      "  if (i < int64_t(%s)) {\n"
      "    const int64_t col = i %% %s;\n    const int64_t row = i / %s %% %s;\n"
      "    int64_t rest = i / %s / %s;\n",
      kThreads, Sized(elements), n, n, m, n, m);
  for (size_t axis = call.batch.size(); axis-- > 0;) {
    absl::StrAppend(&text, "    const int64_t b", axis, " = rest % ", Sized(call.batch[axis]),
                    ";\n    rest /= ", Sized(call.batch[axis]), ";\n");
  }
  absl::StrAppendFormat(&text,
                        "    const int64_t a0 = %s;\n    const int64_t b_0 = %s;\n"
                        "    const int64_t to = %s;\n    %s sum = 0;\n",
                        Begin(call.a), Begin(call.b), At(Begin(call.d), call.d, "row", "col"), sum);
  absl::StrAppendFormat(&text,
                        "    for (int64_t k = 0; k < %s; ++k) {\n"
                        "      sum += static_cast<%s>(rg_load(a, %s)) * "
                        "static_cast<%s>(rg_load(b, %s));\n    }\n",
                        Sized(call.k), sum, At("a0", call.a, "row", "k"), sum,
                        At("b_0", call.b, "k", "col"));
  if (call.accumulate) absl::StrAppend(&text, "    sum += rg_load(d, to);\n");
  absl::StrAppend(&text, "    rg_store(d, to, static_cast<", ComputeName(call.out_dtype),
                  ">(sum));\n  }\n");
  return text;
}

}  // namespace

absl::StatusOr<Kernel> FallbackMatMul(const MatMulCall& call, Dialect dialect) {
  if (!IsFloat(call.in_dtype) || !IsFloat(call.out_dtype)) {
    return absl::UnimplementedError(
        absl::StrFormat("matmul of %s into %s: only floating matrices are multiplied",
                        Name(call.in_dtype), Name(call.out_dtype)));
  }
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  double count = 1;
  for (int64_t extent : call.batch) count *= static_cast<double>(extent);
  for (int64_t extent : {call.m, call.n, call.k}) {
    if (extent < 0 || extent > kMost) {
      return absl::UnimplementedError(
          absl::StrFormat("matmul %dx%dx%d: an extent of %d is beyond what a launch takes (%d)",
                          call.m, call.n, call.k, extent, kMost));
    }
  }
  count *= static_cast<double>(call.m) * static_cast<double>(call.n);
  if (count > static_cast<double>(kMost)) {
    return absl::UnimplementedError(
        absl::StrFormat("matmul %dx%dx%d: %g elements are more than a launch takes (%d)", call.m,
                        call.n, call.k, count, kMost));
  }
  const int64_t elements = static_cast<int64_t>(count);
  Kernel kernel{.name = "rg_fallback_matmul",
                .blocks = (elements + kThreads - 1) / kThreads,
                .threads = kThreads,
                .arguments = 3};
  if (elements == 0) return kernel;
  kernel.function = {.comment = absl::StrCat("// ", Name(dialect), ": matmul ", call.m, "x", call.n,
                                             "x", call.k, "\n"),
                     .declarations = Arguments(call),
                     .statements = Statements(call, elements)};
  return kernel;
}

}  // namespace retrograd
