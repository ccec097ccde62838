// Conversions between the storage types of floating values and the types that the host computes in.
#ifndef RETROGRAD_RUNTIME_HOST_HOST_NUMBERS_H_
#define RETROGRAD_RUNTIME_HOST_HOST_NUMBERS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "graph/base/rounding.h"
#include "graph/base/tensor_type.h"

namespace retrograd {

struct HostBf16 {
  uint16_t bits;
};
struct HostFp16 {
  uint16_t bits;
};
template <DType dtype>
struct HostFp8 {
  uint8_t bits;
};
using HostF8E4M3 = HostFp8<DType::kFp8E4M3>;
using HostF8E5M2 = HostFp8<DType::kFp8E5M2>;
using HostF8E4M3Fnuz = HostFp8<DType::kFp8E4M3Fnuz>;
using HostF8E5M2Fnuz = HostFp8<DType::kFp8E5M2Fnuz>;

inline float ToFloat(HostBf16 v) {
  const uint32_t bits = uint32_t{v.bits} << 16;
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}

inline float ToFloat(HostFp16 v) {
  const uint32_t sign = uint32_t{v.bits & 0x8000u} << 16;
  const uint32_t exponent = (v.bits >> 10) & 31, fraction = v.bits & 1023;
  uint32_t bits;
  if (exponent == 31) {
    bits = sign | 0x7f800000u | (fraction << 13);
  } else if (exponent == 0) {
    const float magnitude = std::ldexp(static_cast<float>(fraction), -24);
    std::memcpy(&bits, &magnitude, 4);
    bits |= sign;
  } else {
    bits = sign | ((exponent + 112) << 23) | (fraction << 13);
  }
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}

inline float ToFloat(HostF8E5M2 v) { return ToFloat(HostFp16{static_cast<uint16_t>(v.bits << 8)}); }

inline float ToFloat(HostF8E4M3 v) {
  if ((v.bits & 0x7f) == 0x7f) return std::numeric_limits<float>::quiet_NaN();
  const int exponent = (v.bits >> 3) & 15, fraction = v.bits & 7;
  const float magnitude = exponent == 0
                              ? std::ldexp(static_cast<float>(fraction), -9)
                              : std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
  return v.bits & 0x80 ? -magnitude : magnitude;
}

// The largest codes are numbers as well, and that of -0 is NaN.
template <int fraction_bits, int bias>
float FnuzToFloat(uint8_t bits) {
  if (bits == 0x80) return std::numeric_limits<float>::quiet_NaN();
  const int exponent = (bits & 0x7f) >> fraction_bits, hidden = 1 << fraction_bits;
  const int fraction = bits & (hidden - 1), places = bias + fraction_bits;
  const float magnitude =
      std::ldexp(static_cast<float>(exponent == 0 ? fraction : hidden + fraction),
                 std::max(exponent, 1) - places);
  return bits & 0x80 ? -magnitude : magnitude;
}
inline float ToFloat(HostF8E4M3Fnuz v) { return FnuzToFloat<3, 8>(v.bits); }
inline float ToFloat(HostF8E5M2Fnuz v) { return FnuzToFloat<2, 16>(v.bits); }

// To the nearest, ties to even; a NaN stays one.
inline HostBf16 ToBf16(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  if (f != f) return {static_cast<uint16_t>((bits >> 16) | 64)};
  return {static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
}

inline HostFp16 ToFp16(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const float magnitude = std::fabs(f);
  if (f != f) return {static_cast<uint16_t>(sign | 0x7e00)};
  if (magnitude >= 65520.0f) return {static_cast<uint16_t>(sign | 0x7c00)};  // rounds to infinity
  if (magnitude < 6.103515625e-05f) {  // below 2^-14: a multiple of 2^-24
    const float scaled = std::nearbyint(magnitude * 16777216.0f);
    return {static_cast<uint16_t>(sign | static_cast<uint16_t>(scaled))};
  }
  bits &= 0x7fffffff;
  bits += 0xfff + ((bits >> 13) & 1);
  return {static_cast<uint16_t>(sign | ((bits >> 13) - (112 << 10)))};
}

// Of the rounded value: its fields, with the hidden bit of a normal number left out.
template <DType dtype>
HostFp8<dtype> ToFp8(float f) {
  constexpr bool kFnuz = dtype == DType::kFp8E4M3Fnuz || dtype == DType::kFp8E5M2Fnuz;
  constexpr bool kOfFour = dtype == DType::kFp8E4M3 || dtype == DType::kFp8E4M3Fnuz;
  constexpr int kFraction = kOfFour ? 3 : 2;
  constexpr int kLeast = (kOfFour ? -6 : -14) - kFnuz;  // exponent of the smallest normal
  const double rounded = RoundTo(dtype, f);
  const int sign = std::signbit(kFnuz ? rounded : f) ? 0x80 : 0;
  if (std::isnan(rounded)) return {static_cast<uint8_t>(kFnuz ? 0x80 : sign | 0x7f)};
  if (std::isinf(rounded)) return {static_cast<uint8_t>(sign | 0x7c)};
  if (rounded == 0) return {static_cast<uint8_t>(sign)};
  const int exponent = std::max(std::ilogb(rounded), kLeast);
  const int places = static_cast<int>(std::ldexp(std::fabs(rounded), kFraction - exponent));
  return {static_cast<uint8_t>(sign | (((exponent - kLeast) << kFraction) + places))};
}

// Load<T, C>, Store<T, C>: element i of storage type T as a value of compute type C and back.
template <typename C, typename T>
C LoadAs(const T* p, int64_t i) {
  if constexpr (std::is_class_v<T>) {
    return static_cast<C>(ToFloat(p[i]));
  } else {
    return static_cast<C>(p[i]);
  }
}

template <typename C>
void StoreAs(HostBf16* p, int64_t i, C v) {
  p[i] = ToBf16(static_cast<float>(v));
}
template <typename C>
void StoreAs(HostFp16* p, int64_t i, C v) {
  p[i] = ToFp16(static_cast<float>(v));
}
template <DType dtype, typename C>
void StoreAs(HostFp8<dtype>* p, int64_t i, C v) {
  p[i] = ToFp8<dtype>(static_cast<float>(v));
}
template <typename C>
void StoreAs(float* p, int64_t i, C v) {
  p[i] = static_cast<float>(v);
}
template <typename C>
void StoreAs(double* p, int64_t i, C v) {
  p[i] = static_cast<double>(v);
}

// Calls f with a null pointer of the dtype's storage type; false if it is no floating type.
template <typename F>
bool WithFloatType(DType dtype, F f) {
  switch (dtype) {
    case DType::kFp16: f(static_cast<HostFp16*>(nullptr)); return true;
    case DType::kBf16: f(static_cast<HostBf16*>(nullptr)); return true;
    case DType::kFp8E4M3: f(static_cast<HostF8E4M3*>(nullptr)); return true;
    case DType::kFp8E5M2: f(static_cast<HostF8E5M2*>(nullptr)); return true;
    case DType::kFp8E4M3Fnuz: f(static_cast<HostF8E4M3Fnuz*>(nullptr)); return true;
    case DType::kFp8E5M2Fnuz: f(static_cast<HostF8E5M2Fnuz*>(nullptr)); return true;
    case DType::kFp32: f(static_cast<float*>(nullptr)); return true;
    case DType::kFp64: f(static_cast<double*>(nullptr)); return true;
    default: return false;
  }
}

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_HOST_HOST_NUMBERS_H_
