#include "codegen/preludes/gpu/parts.h"

namespace retrograd {

const char kCudaBf16[] = R"(
struct rg_f8e4m3 {
  unsigned char bits;
};
struct rg_f8e5m2 {
  unsigned char bits;
};
struct rg_f8e4m3fnuz {
  unsigned char bits;
};
struct rg_f8e5m2fnuz {
  unsigned char bits;
};

// bf16 to the nearest value, ties to even; NaN stays NaN. Two values take one instruction, and so does one
// beside a zero: the conversion of one alone is an eighth as fast.
struct rg_bf16 {
  unsigned short bits;
};
__device__ __forceinline__ unsigned rg_narrow_two(float low, float high, rg_bf16*) {
  unsigned out;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
}
__device__ __forceinline__ rg_bf16 rg_narrow(float v, rg_bf16* type) {
  rg_bf16 out;
  out.bits = static_cast<unsigned short>(rg_narrow_two(v, 0.0f, type));
  return out;
}
// As the upper half of a word it is the rounded fp32.
__device__ __forceinline__ float rg_rounded(float v, rg_bf16* type) {
  return rg_from_bits(rg_narrow_two(0.0f, v, type));
}

__device__ __forceinline__ void rg_hide(unsigned& word) { asm volatile("" : "+r"(word)); }

// One instruction in place of three.
__device__ __forceinline__ float rg_max(float a, float b) {
  float out;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(out) : "f"(a), "f"(b));
  return out;
}
__device__ __forceinline__ float rg_min(float a, float b) {
  float out;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(out) : "f"(a), "f"(b));
  return out;
}
)";

const char kCudaFp16AndFp8[] = R"(
struct rg_fp16 {
  unsigned short bits;
};
__device__ __forceinline__ float rg_widen(rg_fp16 v) {
  float out;
  asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(v.bits));
  return out;
}
__device__ __forceinline__ unsigned rg_narrow_two(float low, float high, rg_fp16*) {
  unsigned out;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
}
__device__ __forceinline__ rg_fp16 rg_narrow(float v, rg_fp16* type) {
  rg_fp16 out;
  out.bits = static_cast<unsigned short>(rg_narrow_two(v, 0.0f, type));
  return out;
}
__device__ __forceinline__ float rg_rounded(float v, rg_fp16* type) {
  return rg_widen(rg_narrow(v, type));
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
#define RG_FP8_CONVERSIONS
// Two fp8 values in the lower half of a word. The instructions end at the largest number where the framework
// has NaN or infinity: what lies beyond half a unit past it is given that code, its sign stays.
__device__ __forceinline__ unsigned rg_fp8_beyond(unsigned code, float v, float most, unsigned beyond) {
  return fabsf(v) > most ? (code & 0x80u) | beyond : code;
}
__device__ __forceinline__ unsigned rg_narrow_two_within(float low, float high, rg_f8e4m3*) {
  unsigned short out;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(out) : "f"(high), "f"(low));
  return out;
}
__device__ __forceinline__ unsigned rg_narrow_two_within(float low, float high, rg_f8e5m2*) {
  unsigned short out;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(out) : "f"(high), "f"(low));
  return out;
}
__device__ __forceinline__ unsigned rg_narrow_two(float low, float high, rg_f8e4m3* type) {
  const unsigned out = rg_narrow_two_within(low, high, type);
  return rg_fp8_beyond(out & 0xffu, low, 464.0f, 0x7fu) |
         rg_fp8_beyond(out >> 8, high, 464.0f, 0x7fu) << 8;
}
__device__ __forceinline__ unsigned rg_narrow_two(float low, float high, rg_f8e5m2* type) {
  const unsigned out = rg_narrow_two_within(low, high, type);
  return rg_fp8_beyond(out & 0xffu, low, 61439.996f, 0x7cu) |
         rg_fp8_beyond(out >> 8, high, 61439.996f, 0x7cu) << 8;
}
__device__ __forceinline__ float rg_widen(rg_f8e4m3 v) {
  unsigned halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<unsigned short>(v.bits)));
  rg_fp16 half;
  half.bits = static_cast<unsigned short>(halves);
  return rg_widen(half);
}
// The upper byte of an fp16.
__device__ __forceinline__ float rg_widen(rg_f8e5m2 v) {
  rg_fp16 half;
  half.bits = static_cast<unsigned short>(v.bits << 8);
  return rg_widen(half);
}
#endif
)";

const char kCudaFunctions[] = R"(
// x P(x^2) / Q(x^2) on [-3.9, 3.9], past which erf is 1 in fp32: coefficients fitted to the least relative
// error, 3.3e-7 with the rounding of fp32. A third of the library's instructions. NaN stays NaN.
__device__ __forceinline__ float rg_erf(float v) {
  float x, over_q;
  asm("min.NaN.f32 %0, %1, 0f4079999A;" : "=f"(x) : "f"(v));   // 3.9
  asm("max.NaN.f32 %0, %1, 0fC079999A;" : "=f"(x) : "f"(x));
  const float t = x * x;
  float p = 2.06649383e-06f;
  p = fmaf(p, t, 0.000285058923f);
  p = fmaf(p, t, 0.0037382138f);
  p = fmaf(p, t, 0.0526676774f);
  p = fmaf(p, t, 0.189663783f);
  p = fmaf(p, t, 1.12837911f);
  float q = 3.827006e-05f;
  q = fmaf(q, t, 0.00115734339f);
  q = fmaf(q, t, 0.0149140144f);
  q = fmaf(q, t, 0.113817699f);
  q = fmaf(q, t, 0.501417935f);
  q = fmaf(q, t, 1.0f);
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(over_q) : "f"(q));
  return x * p * over_q;
}

// 2 to the power of v / ln(2), whose rounding moves the result by up to 1.2 |v| units in the last place; the
// instruction is off by two (PTX ISA, ex2). Five instructions in place of the library's eight, or two where
// results below the normal numbers may be zero.
__device__ __forceinline__ float rg_exp(float v) {
  float power;
  asm("ex2.approx.f32 %0, %1;" : "=f"(power) : "f"(v * 1.44269504f));
  return power;
}
__device__ __forceinline__ float rg_exp_or_zero(float v) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(v * 1.44269504f));
  return power;
}
)";

}  // namespace retrograd
