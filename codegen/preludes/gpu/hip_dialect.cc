#include "codegen/preludes/gpu/parts.h"

namespace retrograd {

const char kHipDialect[] = R"(
#define RG_LOAD_ONCE(from) *(from)
#define RG_STORE_ONCE(to, word) *(to) = (word)
#if !defined(__HIPCC_RTC__)
#include <hip/hip_runtime.h>
#include <stdint.h>
#else
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef int int32_t;
// Releases of HIPRTC differ in whether they define int64_t, and as which type.
typedef long long rg_int64;
#define int64_t rg_int64
#endif

#define RG_GRID_CONSTANT

// A kernel starts when the one before it has finished.
#define RG_EARLY_WAIT()
#define RG_EARLY_START()

__device__ __forceinline__ void* rg_device_pointer(void* p) { return p; }

#define RG_WARP 64
#define RG_SHUFFLE_XOR(v, n) rg_shuffle_xor(v, n)
#define RG_SHUFFLE_DOWN(v, n) rg_shuffle_down(v, n)
// Of the 32 threads that a thread is one of.
#define RG_BALLOT(p) static_cast<unsigned>(__ballot(p) >> (threadIdx.x & 32))
#define RG_POPCOUNT(bits) __popc(bits)
// A wavefront goes on together; what the compiler must not do is to move accesses across.
#define RG_WARP_BARRIER()                                  \
  do {                                                     \
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront"); \
    __builtin_amdgcn_wave_barrier();                       \
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront"); \
  } while (false)
// The 32 threads that vote together store where `there`; of several at one element any one's value
// stands, for all to see.
#define RG_STORE_ANY(there, element, value) \
  do {                                      \
    if (there) element = value;             \
    RG_WARP_BARRIER();                      \
  } while (false)

__device__ __forceinline__ float rg_max(float a, float b) { return a > b || a != a ? a : b; }
__device__ __forceinline__ float rg_min(float a, float b) { return a < b || a != a ? a : b; }

__device__ __forceinline__ int rg_shuffle_xor(int v, int n) { return __shfl_xor(v, n); }
__device__ __forceinline__ float rg_shuffle_xor(float v, int n) { return __shfl_xor(v, n); }
__device__ __forceinline__ double rg_shuffle_xor(double v, int n) {
  return __shfl_xor(v, n);
}
__device__ __forceinline__ int64_t rg_shuffle_xor(int64_t v, int n) {
  return static_cast<int64_t>(__shfl_xor(static_cast<long long>(v), n));
}
__device__ __forceinline__ int rg_shuffle_down(int v, int n) { return __shfl_down(v, n); }
__device__ __forceinline__ float rg_shuffle_down(float v, int n) {
  return __shfl_down(v, n);
}
__device__ __forceinline__ double rg_shuffle_down(double v, int n) {
  return __shfl_down(v, n);
}
__device__ __forceinline__ int64_t rg_shuffle_down(int64_t v, int n) {
  return static_cast<int64_t>(__shfl_down(static_cast<long long>(v), n));
}

__device__ __forceinline__ unsigned rg_bits(float v) {
  unsigned out;
  __builtin_memcpy(&out, &v, 4);
  return out;
}
__device__ __forceinline__ float rg_from_bits(unsigned v) {
  float out;
  __builtin_memcpy(&out, &v, 4);
  return out;
}

__device__ __forceinline__ double rg_double_of(int low, int high) {
  const unsigned words[2] = {static_cast<unsigned>(low), static_cast<unsigned>(high)};
  double out;
  __builtin_memcpy(&out, words, sizeof out);
  return out;
}

__device__ __forceinline__ unsigned rg_shift_words(unsigned low, unsigned high, int bits) {
  return static_cast<unsigned>((static_cast<unsigned long long>(high) << 32 | low) >> bits);
}

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

// To the nearest value, ties to even; NaN stays NaN.
struct rg_bf16 {
  unsigned short bits;
};
__device__ __forceinline__ rg_bf16 rg_narrow(float v, rg_bf16*) {
  const unsigned bits = rg_bits(v);
  rg_bf16 out;
  out.bits = static_cast<unsigned short>(
      v != v ? (bits >> 16) | 0x40u : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
  return out;
}
__device__ __forceinline__ unsigned rg_narrow_two(float low, float high, rg_bf16* type) {
  return rg_narrow(low, type).bits | static_cast<unsigned>(rg_narrow(high, type).bits) << 16;
}
__device__ __forceinline__ float rg_rounded(float v, rg_bf16* type) {
  return rg_from_bits(static_cast<unsigned>(rg_narrow(v, type).bits) << 16);
}

__device__ __forceinline__ void rg_hide(unsigned& word) { asm volatile("" : "+v"(word)); }

// No such copies: done at once.
template <int bytes>
__device__ __forceinline__ void rg_copy_bytes(void* to, const void* from) {
  __builtin_memcpy(__builtin_assume_aligned(to, bytes), __builtin_assume_aligned(from, bytes), bytes);
}
template <int bytes>
__device__ __forceinline__ void rg_copy_bytes_of_line(void* to, const void* from) {
  rg_copy_bytes<bytes>(to, from);
}
#define RG_COPIES_SENT()
#define RG_COPIES_WAIT(n)

struct rg_fp16 {
  unsigned short bits;
};
__device__ __forceinline__ float rg_widen(rg_fp16 v) {
  _Float16 h;
  __builtin_memcpy(&h, &v.bits, 2);
  return static_cast<float>(h);
}
__device__ __forceinline__ rg_fp16 rg_narrow(float v, rg_fp16*) {
  const _Float16 h = static_cast<_Float16>(v);
  rg_fp16 out;
  __builtin_memcpy(&out.bits, &h, 2);
  return out;
}
__device__ __forceinline__ unsigned rg_narrow_two(float low, float high, rg_fp16* type) {
  return rg_narrow(low, type).bits | static_cast<unsigned>(rg_narrow(high, type).bits) << 16;
}
__device__ __forceinline__ float rg_rounded(float v, rg_fp16* type) {
  return rg_widen(rg_narrow(v, type));
}

__device__ __forceinline__ float rg_erf(float v) { return erff(v); }
__device__ __forceinline__ float rg_exp(float v) { return expf(v); }
__device__ __forceinline__ float rg_exp_or_zero(float v) { return expf(v); }
)";

}  // namespace retrograd
