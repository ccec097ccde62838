#include "codegen/preludes/gpu/parts.h"

namespace retrograd {

const char kFp8Numbers[] = R"(
// --- storage and arithmetic types ---

RG_INLINE float rg_widen(rg_bf16 v) { return rg_from_bits(static_cast<unsigned>(v.bits) << 16); }
// The code of the nearest number, ties to even, or `beyond` past the one of code `largest`. Adding a number
// whose last place is the smallest fp8 number rounds what is subnormal.
template <int fraction, int bias>
RG_INLINE unsigned rg_narrow_fp8(float v, unsigned largest, unsigned beyond) {
  constexpr unsigned shift = 23 - fraction, normal = (128u - bias) << 23;
  constexpr unsigned unit = (127u - bias + 1 - fraction + 23) << 23;  // its last place is fp8's smallest number
  const unsigned bits = rg_bits(v), sign = bits >> 24 & 0x80u, size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) return sign | 0x7fu;
  unsigned code;
  if (size < normal) {
    code = rg_bits(rg_from_bits(size) + rg_from_bits(unit)) - unit;
  } else {
    code = (size - ((127u - bias) << 23) + ((1u << (shift - 1)) - 1) + (size >> shift & 1u)) >> shift;
  }
  return sign | (code > largest ? beyond : code);
}
// Of |v|; 0 has no sign, and code 0x80 is NaN.
template <int fraction, int bias>
RG_INLINE unsigned rg_narrow_fnuz(float v) {
  const unsigned code = v != v ? 0x80u : rg_narrow_fp8<fraction, bias>(fabsf(v), 0x7fu, 0x80u);
  return (code & 0x7fu) == 0 ? code : (rg_bits(v) >> 24 & 0x80u) | code;
}
// The fields as those of an fp32 are the number but for the exponent's bias.
template <int fraction, int bias>
RG_INLINE float rg_widen_fnuz(unsigned code) {
  if (code == 0x80u) return rg_from_bits(0x7fc00000u);
  const float size = rg_from_bits((code & 0x7fu) << (23 - fraction)) * rg_from_bits((254u - bias) << 23);
  return rg_from_bits((code & 0x80u) << 24 | rg_bits(size));
}
RG_INLINE float rg_widen(rg_f8e4m3fnuz v) { return rg_widen_fnuz<3, 8>(v.bits); }
RG_INLINE float rg_widen(rg_f8e5m2fnuz v) { return rg_widen_fnuz<2, 16>(v.bits); }
RG_INLINE unsigned rg_narrow_two(float low, float high, rg_f8e4m3fnuz*) {
  return rg_narrow_fnuz<3, 8>(low) | rg_narrow_fnuz<3, 8>(high) << 8;
}
RG_INLINE unsigned rg_narrow_two(float low, float high, rg_f8e5m2fnuz*) {
  return rg_narrow_fnuz<2, 16>(low) | rg_narrow_fnuz<2, 16>(high) << 8;
}
RG_INLINE rg_f8e4m3fnuz rg_narrow(float v, rg_f8e4m3fnuz*) {
  rg_f8e4m3fnuz out;
  out.bits = static_cast<unsigned char>(rg_narrow_fnuz<3, 8>(v));
  return out;
}
RG_INLINE rg_f8e5m2fnuz rg_narrow(float v, rg_f8e5m2fnuz*) {
  rg_f8e5m2fnuz out;
  out.bits = static_cast<unsigned char>(rg_narrow_fnuz<2, 16>(v));
  return out;
}
RG_INLINE float rg_rounded(float v, rg_f8e4m3fnuz* type) { return rg_widen(rg_narrow(v, type)); }
RG_INLINE float rg_rounded(float v, rg_f8e5m2fnuz* type) { return rg_widen(rg_narrow(v, type)); }
#if !defined(RG_FP8_CONVERSIONS)
RG_INLINE unsigned rg_narrow_two(float low, float high, rg_f8e4m3*) {
  return rg_narrow_fp8<3, 7>(low, 0x7eu, 0x7fu) | rg_narrow_fp8<3, 7>(high, 0x7eu, 0x7fu) << 8;
}
RG_INLINE unsigned rg_narrow_two(float low, float high, rg_f8e5m2*) {
  return rg_narrow_fp8<2, 15>(low, 0x7bu, 0x7cu) | rg_narrow_fp8<2, 15>(high, 0x7bu, 0x7cu) << 8;
}
// The fields as those of an fp32 are the number but for the exponent's bias. `most`: the code of the largest
// number; behind it there is `past` and then NaN.
RG_INLINE float rg_widen_fp8(unsigned code, int shift, float bias, unsigned most, unsigned past) {
  const unsigned size = code & 0x7fu, sign = (code & 0x80u) << 24;
  if (size > most) return rg_from_bits(sign | (size == past ? 0x7f800000u : 0x7fc00000u));
  return rg_from_bits(sign | rg_bits(rg_from_bits(size << shift) * bias));
}
RG_INLINE float rg_widen(rg_f8e4m3 v) { return rg_widen_fp8(v.bits, 20, 0x1p120f, 0x7eu, 0u); }
RG_INLINE float rg_widen(rg_f8e5m2 v) { return rg_widen_fp8(v.bits, 21, 0x1p112f, 0x7bu, 0x7cu); }
#endif
RG_INLINE rg_f8e4m3 rg_narrow(float v, rg_f8e4m3* type) {
  rg_f8e4m3 out;
  out.bits = static_cast<unsigned char>(rg_narrow_two(v, 0.0f, type));
  return out;
}
RG_INLINE rg_f8e5m2 rg_narrow(float v, rg_f8e5m2* type) {
  rg_f8e5m2 out;
  out.bits = static_cast<unsigned char>(rg_narrow_two(v, 0.0f, type));
  return out;
}
RG_INLINE float rg_rounded(float v, rg_f8e4m3* type) { return rg_widen(rg_narrow(v, type)); }
RG_INLINE float rg_rounded(float v, rg_f8e5m2* type) { return rg_widen(rg_narrow(v, type)); }
)";

}  // namespace retrograd
