#include "codegen/print/dialect.h"

#include <cmath>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

constexpr Spelling kSpellings[] = {
    {.unroll = "#pragma unroll",  // CUDA
     .infinity_f32 = "__int_as_float(0x7f800000)",
     .infinity_f64 = "__longlong_as_double(0x7ff0000000000000LL)",
     .nan_f32 = "__int_as_float(0x7fc00000)",
     .nan_f64 = "__longlong_as_double(0x7ff8000000000000LL)"},
    {.unroll = "#pragma unroll",  // HIP
     .infinity_f32 = "__builtin_inff()",
     .infinity_f64 = "__builtin_inf()",
     .nan_f32 = "__builtin_nanf(\"\")",
     .nan_f64 = "__builtin_nan(\"\")"},
    {.unroll = "",  // host: unrolling would only cost compile time
     .infinity_f32 = "__builtin_inff()",
     .infinity_f64 = "__builtin_inf()",
     .nan_f32 = "__builtin_nanf(\"\")",
     .nan_f64 = "__builtin_nan(\"\")"},
};

std::string FloatLiteral(double value, bool fp64, Dialect dialect) {
  const Spelling& spell = SpellingOf(dialect);
  if (!fp64) value = static_cast<double>(static_cast<float>(value));
  if (std::isnan(value)) return std::string(fp64 ? spell.nan_f64 : spell.nan_f32);
  if (std::isinf(value)) {
    const absl::string_view inf = fp64 ? spell.infinity_f64 : spell.infinity_f32;
    return value > 0 ? std::string(inf) : absl::StrCat("(-", inf, ")");
  }
  std::string text = absl::StrFormat(fp64 ? "%.17g" : "%.9g", value);
  if (!absl::StrContains(text, '.') && !absl::StrContains(text, 'e')) text += ".0";
  if (!fp64) text += "f";
  return std::signbit(value) ? absl::StrCat("(", text, ")") : text;
}

// The integer nearest to a number of the graph, within the type; infinities are its ends.
int64_t Clamped(double value, int64_t low, int64_t high) {
  if (std::isnan(value)) return 0;
  if (value <= static_cast<double>(low)) return low;
  if (value >= static_cast<double>(high)) return high;
  return static_cast<int64_t>(value);
}

template <typename T>
int64_t ClampedTo(double value) {
  return Clamped(value, std::numeric_limits<T>::min(), std::numeric_limits<T>::max());
}

}  // namespace

absl::string_view Name(Dialect dialect) {
  constexpr absl::string_view kNames[] = {"cuda", "hip", "host"};
  return kNames[static_cast<int>(dialect)];
}

const Spelling& SpellingOf(Dialect dialect) { return kSpellings[static_cast<int>(dialect)]; }

absl::string_view StorageName(DType dtype) {
  switch (dtype) {
    case DType::kBool: return "bool";
    case DType::kInt8: return "int8_t";
    case DType::kUInt8: return "uint8_t";
    case DType::kInt32: return "int32_t";
    case DType::kInt64: return "int64_t";
    case DType::kFp16: return "rg_fp16";
    case DType::kBf16: return "rg_bf16";
    case DType::kFp32: return "float";
    case DType::kFp64: return "double";
    case DType::kFp8E4M3: return "rg_f8e4m3";
    case DType::kFp8E5M2: return "rg_f8e5m2";
    case DType::kFp8E4M3Fnuz: return "rg_f8e4m3fnuz";
    case DType::kFp8E5M2Fnuz: return "rg_f8e5m2fnuz";
  }
  RG_CHECK(false);
}

absl::string_view ComputeName(DType dtype) { return StorageName(ComputeType(dtype)); }

absl::string_view AccumulatorName(DType dtype) { return StorageName(AccumulatorType(dtype)); }

std::string Literal(double value, DType dtype, Dialect dialect) {
  switch (ComputeType(dtype)) {
    case DType::kBool: return value != 0 ? "true" : "false";
    case DType::kInt8: return absl::StrCat("int8_t(", ClampedTo<int8_t>(value), ")");
    case DType::kUInt8: return absl::StrCat("uint8_t(", ClampedTo<uint8_t>(value), ")");
    case DType::kInt32: {
      const int64_t v = ClampedTo<int32_t>(value);
      return v == std::numeric_limits<int32_t>::min() ? "(-2147483647 - 1)"
             : v < 0                                  ? absl::StrCat("(", v, ")")
                                                      : absl::StrCat(v);
    }
    case DType::kInt64: {
      const int64_t v = ClampedTo<int64_t>(value);
      return v == std::numeric_limits<int64_t>::min() ? "int64_t(-9223372036854775807LL - 1)"
                                                      : absl::StrCat("int64_t(", v, "LL)");
    }
    case DType::kFp64: return FloatLiteral(value, true, dialect);
    default: return FloatLiteral(value, false, dialect);
  }
}

}  // namespace retrograd
