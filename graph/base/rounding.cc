#include "graph/base/rounding.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace retrograd {
namespace {

struct FloatFormat {
  int digits;        // of the significand, the hidden one included
  int min_exponent;  // of the smallest normal number, 2^min_exponent
  double largest;
};

FloatFormat FormatOf(DType dtype) {
  switch (dtype) {
    case DType::kFp8E4M3: return {4, -6, 448.0};
    case DType::kFp8E5M2: return {3, -14, 57344.0};
    case DType::kFp8E4M3Fnuz: return {4, -7, 240.0};
    case DType::kFp8E5M2Fnuz: return {3, -15, 57344.0};
    case DType::kFp16: return {11, -14, 65504.0};
    case DType::kBf16: return {8, -126, 3.3895313892515355e38};
    case DType::kFp32: return {24, -126, std::numeric_limits<float>::max()};
    default: return {53, -1022, std::numeric_limits<double>::max()};
  }
}

// The exponent of the last place of `value` in the format.
int LastPlace(const FloatFormat& format, double value) {
  int exponent;  // value = f 2^exponent, f in [1/2, 1)
  std::frexp(value, &exponent);
  return std::max(exponent - 1, format.min_exponent) - (format.digits - 1);
}

double RoundFloat(const FloatFormat& format, double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  const int place = LastPlace(format, value);
  // Both scalings are exact; nearbyint rounds ties to even.
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(value, -place)), place);
  if (std::fabs(rounded) <= format.largest) return rounded;
  return std::copysign(std::numeric_limits<double>::infinity(), value);
}

// A format that spends no code on infinity has NaN in its place.
double WithoutInfinity(double value) {
  return std::isinf(value) ? std::copysign(std::numeric_limits<double>::quiet_NaN(), value) : value;
}

template <typename Integer>
double Wrap(double value) {
  if (!(std::fabs(value) < 9223372036854775808.0)) return 0;
  return static_cast<double>(static_cast<Integer>(static_cast<int64_t>(value)));
}

}  // namespace

double RoundTo(DType dtype, double value) {
  switch (dtype) {
    case DType::kBool: return value != 0 ? 1 : 0;
    case DType::kInt8: return Wrap<int8_t>(value);
    case DType::kUInt8: return Wrap<uint8_t>(value);
    case DType::kInt32: return Wrap<int32_t>(value);
    case DType::kInt64: return Wrap<int64_t>(value);
    case DType::kFp32: return static_cast<double>(static_cast<float>(value));
    case DType::kFp64: return value;
    case DType::kFp8E4M3: return WithoutInfinity(RoundFloat(FormatOf(dtype), value));
    case DType::kFp8E4M3Fnuz:
    case DType::kFp8E5M2Fnuz:  // and -0 is 0
      return WithoutInfinity(RoundFloat(FormatOf(dtype), value)) + 0.0;
    default: return RoundFloat(FormatOf(dtype), value);
  }
}

void RoundTo(DType dtype, absl::Span<double> values) {
  if (dtype == DType::kFp64) return;
  for (double& value : values) value = RoundTo(dtype, value);
}

double LargestOf(DType dtype) { return FormatOf(dtype).largest; }

double UnitInLastPlace(DType dtype, double value) {
  if (!IsFloat(dtype)) return 1;
  if (!std::isfinite(value)) return std::numeric_limits<double>::infinity();
  const FloatFormat format = FormatOf(dtype);
  if (value == 0) return std::ldexp(1.0, format.min_exponent - (format.digits - 1));
  return std::ldexp(1.0, LastPlace(format, value));
}

}  // namespace retrograd
