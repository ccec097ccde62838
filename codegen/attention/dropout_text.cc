#include "codegen/attention/dropout_text.h"

#include "absl/strings/str_cat.h"
#include "codegen/print/numbers/sized_number.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

absl::string_view TypeName(DropoutVariant variant) {
  switch (variant) {
    case DropoutVariant::kCudnn: return "rg_dropout_cudnn";
    case DropoutVariant::kEfficient: return "rg_dropout_efficient";
    case DropoutVariant::kFlash: return "rg_dropout_flash";
  }
  RG_CHECK(false);
}

}  // namespace

std::string DropoutText(const AttentionCall& call, Dialect dialect) {
  const DropoutVariant variant = DropoutOf(call);
  const DropoutLimits limits = DropoutLimitsOf(variant, call.dropout_p);
  const size_t seed = AttentionSeed(call);
  const std::string limit = variant == DropoutVariant::kEfficient
                                ? Literal(limits.keep_above, DType::kFp32, dialect)
                                : absl::StrCat(limits.keep_up_to, "u");
  const auto loaded = [&](absl::string_view name, size_t operand) {
    return absl::StrCat("static_cast<unsigned long long>(rg_load(", name, ", ",
                        Sized(call.operands[operand].offset), "))");
  };
  return absl::StrCat("const ", TypeName(variant), " dropout = {", loaded("seed", seed), ", ",
                      loaded("offset", seed + 1), ", ", limit, ", ",
                      Literal(1 / (1 - call.dropout_p), DType::kFp32, dialect), ", ",
                      Sized(call.operands[1].shape[2]), ", ", Sized(call.operands[2].shape[2]),
                      "};");
}

}  // namespace retrograd
