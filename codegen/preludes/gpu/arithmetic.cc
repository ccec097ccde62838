#include "codegen/preludes/gpu/parts.h"

namespace retrograd {

const char kArithmetic[] = R"(
// --- arithmetic: the accurate functions of the device library, but for erf and exp of fp32 ---

RG_INLINE float rg_abs(float v) { return fabsf(v); }
RG_INLINE double rg_abs(double v) { return fabs(v); }
RG_INLINE int32_t rg_abs(int32_t v) { return v < 0 ? -v : v; }
RG_INLINE int64_t rg_abs(int64_t v) { return v < 0 ? -v : v; }
RG_INLINE float rg_sign(float v) { return static_cast<float>((v > 0) - (v < 0)); }
RG_INLINE double rg_sign(double v) { return static_cast<double>((v > 0) - (v < 0)); }
RG_INLINE int32_t rg_sign(int32_t v) { return (v > 0) - (v < 0); }
RG_INLINE int64_t rg_sign(int64_t v) { return (v > 0) - (v < 0); }

RG_INLINE float rg_relu(float v) { return v < 0 ? 0 : v; }
#define RG_ORDERED(type)                                                                     \
  RG_INLINE type rg_max(type a, type b) { return a > b || a != a ? a : b; } /* a NaN wins */ \
  RG_INLINE type rg_min(type a, type b) { return a < b || a != a ? a : b; }                  \
  RG_INLINE type rg_relu(type v) { return v < 0 ? 0 : v; }
RG_ORDERED(double)
RG_ORDERED(int32_t)
RG_ORDERED(int64_t)

#define RG_MATH(name, function)                                   \
  RG_INLINE float rg_##name(float v) { return function##f(v); }   \
  RG_INLINE double rg_##name(double v) { return function(v); }
RG_MATH(floor, floor)
RG_MATH(sqrt, sqrt)
RG_MATH(rsqrt, rsqrt)
RG_MATH(log, log)
RG_MATH(exp2, exp2)
RG_MATH(log2, log2)
RG_MATH(log1p, log1p)
RG_MATH(tanh, tanh)
RG_MATH(sin, sin)
RG_MATH(cos, cos)
RG_INLINE double rg_erf(double v) { return erf(v); }
RG_INLINE double rg_exp(double v) { return exp(v); }
// The exponent alone; of a subnormal number, that of 2^24 times as much.
RG_INLINE float rg_floor_pow2(float v) {
  const unsigned size = rg_bits(v) & 0x7fffffffu;
  if (size >= 0x7f800000u) return v;
  const bool small = size < 0x00800000u;
  const float power = rg_from_bits(rg_bits(small ? v * 16777216.0f : v) & 0xff800000u);
  return small ? power * (1.0f / 16777216.0f) : power;
}
RG_INLINE double rg_floor_pow2(double v) {
  if (v == 0 || v - v != 0) return v;
  int exponent;
  frexp(v, &exponent);
  return copysign(ldexp(0.5, exponent), v);
}
RG_INLINE float rg_pow(float a, float b) { return powf(a, b); }
RG_INLINE double rg_pow(double a, double b) { return pow(a, b); }
RG_INLINE float rg_fmod(float a, float b) { return fmodf(a, b); }
RG_INLINE double rg_fmod(double a, double b) { return fmod(a, b); }
)";

}  // namespace retrograd
