#include "codegen/preludes/gpu_prelude.h"

#include "absl/strings/str_cat.h"

namespace retrograd {
namespace {

// --- what differs --------------------------------------------------------------------------------

constexpr char kCudaOnly[] = R"(
#define RG_LOAD_ONCE(from) __ldcs(from)
#define RG_STORE_ONCE(to, word) __stcs(to, word)
#if defined(__CUDACC_RTC__)
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef int int32_t;
typedef long long int64_t;
#else
#include <stdint.h>
#endif

// Parameters that are indexed by a variable stay where they are.
#define RG_GRID_CONSTANT __grid_constant__

// At the head of a kernel: the next one may start, too, if it was launched so, and this one goes on when
// the kernels before it have finished and what they wrote can be seen. Both do nothing where the launch
// does not ask for it. RG_EARLY_WAIT holds the next one back until all blocks of this one have ended:
// if they work for long, those of the next one would take room on some multiprocessors meanwhile.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define RG_EARLY_WAIT() asm volatile("griddepcontrol.wait;" ::: "memory")
#define RG_EARLY_START()                                     \
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); \
  RG_EARLY_WAIT()
#else
#define RG_EARLY_WAIT()
#define RG_EARLY_START()
#endif

#define RG_WARP 32
#define RG_SHUFFLE_XOR(v, n) __shfl_xor_sync(0xffffffffu, v, n)
#define RG_SHUFFLE_DOWN(v, n) __shfl_down_sync(0xffffffffu, v, n)
#define RG_BALLOT(p) __ballot_sync(0xffffffffu, p)
#define RG_POPCOUNT(bits) __popc(bits)
#define RG_WARP_BARRIER() __syncwarp()

__device__ __forceinline__ unsigned rg_bits(float v) { return __float_as_uint(v); }
__device__ __forceinline__ float rg_from_bits(unsigned v) { return __uint_as_float(v); }
__device__ __forceinline__ double rg_double_of(int low, int high) { return __hiloint2double(high, low); }
__device__ __forceinline__ unsigned rg_shift_words(unsigned low, unsigned high, int bits) {
  return __funnelshift_r(low, high, bits);
}

// An address that the driver gave: of device memory, which the compiler cannot know of a pointer that is
// read from a table. Accesses that could be of shared memory as well take longer and keep an order with those.
__device__ __forceinline__ void* rg_device_pointer(void* p) {
  return __cvta_global_to_generic(reinterpret_cast<size_t>(p));
}

struct rg_f8e4m3 {
  unsigned char bits;
};
struct rg_f8e5m2 {
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

// From device into shared memory without passing through registers; a batch of copies is sent off, and
// RG_COPIES_WAIT(n) waits until no more than the last n batches are under way. Fewer than four bytes are copied
// at once.
template <int bytes>
__device__ __forceinline__ void rg_copy_bytes(void* to, const void* from) {
  [[maybe_unused]] const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(to));
  if constexpr (bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
  } else if constexpr (bytes == 2) {
    *static_cast<unsigned short*>(to) = *static_cast<const unsigned short*>(from);
  } else if constexpr (bytes == 1) {
    *static_cast<unsigned char*>(to) = *static_cast<const unsigned char*>(from);
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(at), "l"(from), "n"(bytes) : "memory");
  }
}
#define RG_COPIES_SENT() asm volatile("cp.async.commit_group;" ::: "memory")
#define RG_COPIES_WAIT(n) asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory")

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
)";

constexpr char kHipOnly[] = R"(
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
)";

// --- what is the same ----------------------------------------------------------------------------

constexpr char kShared[] = R"(
#define RG_INLINE __device__ __forceinline__

template <int n>
struct rg_slots {
  int at[n];
};

#define RG_KERNEL(name, threads, arguments)                     \
  extern "C" __global__ void __launch_bounds__(threads) name(   \
      void* const* __restrict__ rg_table, const RG_GRID_CONSTANT rg_slots<arguments> rg_slot)
// The same for at least so many blocks on an SM at once: then the compiler takes as many registers
// as those leave, instead of spilling a few to make room for more blocks.
#define RG_KERNEL_RESIDENT(name, threads, arguments, blocks)           \
  extern "C" __global__ void __launch_bounds__(threads, blocks) name(  \
      void* const* __restrict__ rg_table, const RG_GRID_CONSTANT rg_slots<arguments> rg_slot)
// The same with addresses in place of the table: they are parameters.
template <int n>
struct rg_addresses {
  void* at[n];
};
struct rg_in_order {
  struct {
    __device__ constexpr int operator[](int i) const { return i; }
  } at;
};
#define RG_DIRECT(name, arguments, ...)                                                       \
  RG_INLINE void name##_body(void* const* __restrict__ rg_table, const rg_in_order& rg_slot); \
  extern "C" __global__ void __launch_bounds__(__VA_ARGS__)                                   \
      name(const RG_GRID_CONSTANT rg_addresses<arguments> rg_given) {                         \
    name##_body(rg_given.at, rg_in_order());                                                  \
  }                                                                                           \
  RG_INLINE void name##_body(void* const* __restrict__ rg_table, const rg_in_order& rg_slot)
#define RG_KERNEL_DIRECT(name, threads, arguments) RG_DIRECT(name, arguments, threads)
#define RG_KERNEL_DIRECT_RESIDENT(name, threads, arguments, blocks) \
  RG_DIRECT(name, arguments, threads, blocks)
#define RG_ARG(type, name, index) \
  type* const name = static_cast<type*>(rg_device_pointer(rg_table[rg_slot.at[rg_first_argument + index]]))
// Numbers that are arguments: words where the place of a pointer would stand.
#define RG_NUMBER(type, name, index) const type name = rg_number(rg_slot.at[index], static_cast<type*>(nullptr))
#define RG_WIDE_NUMBER(type, name, index) \
  const type name = rg_number(rg_slot.at[index], rg_slot.at[index + 1], static_cast<type*>(nullptr))
RG_INLINE int rg_number(int word, int*) { return word; }
RG_INLINE float rg_number(int word, float*) { return rg_from_bits(static_cast<unsigned>(word)); }
RG_INLINE int64_t rg_number(int low, int high, int64_t*) {
  return static_cast<int64_t>(static_cast<unsigned long long>(static_cast<unsigned>(high)) << 32 |
                              static_cast<unsigned>(low));
}
RG_INLINE double rg_number(int low, int high, double*) { return rg_double_of(low, high); }
// Aligned to the widest access.
#define RG_SHARED(type, name, count) alignas(16) __shared__ type name[count]
// Memory of the block that the launch asks for.
extern __shared__ int4 rg_staged_memory[];
#define RG_STAGED(type, name, first_byte, count) \
  type* const name = reinterpret_cast<type*>(reinterpret_cast<char*>(rg_staged_memory) + (first_byte))
#define RG_THREAD static_cast<int>(threadIdx.x)
#define RG_BLOCK (static_cast<int>(blockIdx.x) - rg_first_block)
#define RG_BARRIER() __syncthreads()

// A kernel that shares its launch is a function, with numbers of its own in place of these two, and
// its shared arrays one after the other in the launch's pool.
[[maybe_unused]] constexpr int rg_first_block = 0, rg_first_argument = 0;
[[maybe_unused]] constexpr char* rg_pool = nullptr;
#define RG_POOL(bytes) \
  __shared__ int4 rg_pool_words[(bytes + 15) / 16]; \
  char* const rg_pool = reinterpret_cast<char*>(rg_pool_words)
#define RG_MEMBER(name)                                                                       \
  template <typename rg_slots_of_launch>                                                      \
  RG_INLINE void name(void* const* __restrict__ rg_table, const rg_slots_of_launch& rg_slot, \
                      const int rg_first_block, const int rg_first_argument, char* rg_pool)
#define RG_POOLED(type, name, count) type* const name = rg_take<type>(rg_pool, count)
#define RG_RUN(name, first_block, first_argument) \
  name(rg_table, rg_slot, first_block, first_argument, rg_pool)

template <typename T>
RG_INLINE T* rg_take(char*& pool, int count) {
  T* const data = reinterpret_cast<T*>(pool);
  pool += (count * static_cast<int>(sizeof(T)) + 15) / 16 * 16;
  return data;
}

// --- storage and arithmetic types ---

RG_INLINE float rg_widen(rg_bf16 v) { return rg_from_bits(static_cast<unsigned>(v.bits) << 16); }
#if !defined(RG_FP8_CONVERSIONS)
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
RG_INLINE bool rg_widen(bool v) { return v; }
RG_INLINE int8_t rg_widen(int8_t v) { return v; }
RG_INLINE uint8_t rg_widen(uint8_t v) { return v; }
RG_INLINE int32_t rg_widen(int32_t v) { return v; }
RG_INLINE int64_t rg_widen(int64_t v) { return v; }
RG_INLINE float rg_widen(float v) { return v; }
RG_INLINE double rg_widen(double v) { return v; }

template <typename V>
RG_INLINE bool rg_narrow(V v, bool*) { return v != 0; }
template <typename T, typename V>
RG_INLINE T rg_narrow(V v, T*) { return static_cast<T>(v); }

template <typename T>
struct rg_compute { typedef T type; };
template <>
struct rg_compute<rg_bf16> { typedef float type; };
template <>
struct rg_compute<rg_fp16> { typedef float type; };
template <>
struct rg_compute<rg_f8e4m3> { typedef float type; };
template <>
struct rg_compute<rg_f8e5m2> { typedef float type; };
template <typename T>
struct rg_compute<const T> : rg_compute<T> {};

template <typename T>
struct rg_plain { typedef T type; };
template <typename T>
struct rg_plain<const T> { typedef T type; };

template <typename T>
RG_INLINE typename rg_compute<T>::type rg_round(typename rg_compute<T>::type v) {
  return rg_rounded(v, static_cast<T*>(nullptr));
}

// --- memory ---

template <typename T>
RG_INLINE typename rg_compute<T>::type rg_load(T* p, int64_t i) { return rg_widen(p[i]); }
template <typename T, typename V>
RG_INLINE void rg_store(T* p, int64_t i, V v) { p[i] = rg_narrow(v, static_cast<T*>(nullptr)); }

template <int bytes> struct rg_word;
template <> struct rg_word<1> { typedef unsigned char type; };
template <> struct rg_word<2> { typedef unsigned short type; };
template <> struct rg_word<4> { typedef unsigned type; };
template <> struct rg_word<8> { typedef uint2 type; };
template <> struct rg_word<16> { typedef uint4 type; };

template <typename T, int V>
union rg_vector {
  typename rg_word<V * sizeof(T)>::type word;
  T element[V];
  // A word may be of class type.
  __device__ rg_vector() {}
  __device__ rg_vector(const rg_vector& other) : word(other.word) {}
  __device__ rg_vector& operator=(const rg_vector& other) {
    word = other.word;
    return *this;
  }
};

template <int V, typename T>
RG_INLINE void rg_load_vec(T* p, int64_t i, typename rg_compute<T>::type* out) {
  typedef typename rg_plain<T>::type E;
  rg_vector<E, V> v;
  v.word = *reinterpret_cast<const typename rg_word<V * sizeof(E)>::type*>(p + i);
#pragma unroll
  for (int k = 0; k < V; ++k) out[k] = rg_widen(v.element[k]);
}

// Lanes that are kept as they lie in memory.
template <typename T, int V>
using rg_pack = rg_vector<T, V>;

template <typename T, int V>
RG_INLINE void rg_load_pack(const T* p, int64_t i, rg_vector<T, V>* out) {
  out->word = *reinterpret_cast<const typename rg_word<V * sizeof(T)>::type*>(p + i);
}

// The same of elements that are not wanted again: they leave the caches before others.
template <int V, typename T>
RG_INLINE void rg_load_vec_once(T* p, int64_t i, typename rg_compute<T>::type* out) {
  typedef typename rg_plain<T>::type E;
  rg_vector<E, V> v;
  v.word = RG_LOAD_ONCE(reinterpret_cast<const typename rg_word<V * sizeof(E)>::type*>(p + i));
#pragma unroll
  for (int k = 0; k < V; ++k) out[k] = rg_widen(v.element[k]);
}
template <typename T, int V>
RG_INLINE void rg_load_pack_once(const T* p, int64_t i, rg_vector<T, V>* out) {
  out->word = RG_LOAD_ONCE(reinterpret_cast<const typename rg_word<V * sizeof(T)>::type*>(p + i));
}

template <typename T, int V>
RG_INLINE void rg_clear(rg_vector<T, V>* out) {
  out->word = typename rg_word<V * sizeof(T)>::type();
}

// Words at any address: of the two aligned accesses that hold them. What lies around them in those
// is of the same 16 bytes as one of them, so it can be read.
template <int bytes, int element>
RG_INLINE void rg_load_shifted(const void* p, unsigned* out) {
  constexpr int n = bytes / 4;
  typedef typename rg_word<bytes>::type word;
  const char* const from = static_cast<const char*>(p);
  const int shift = static_cast<int>(reinterpret_cast<size_t>(p) % bytes);
  rg_vector<unsigned, n> low, high;
  low.word = *reinterpret_cast<const word*>(from - shift);
  high.word = *reinterpret_cast<const word*>(from + (bytes - shift) % bytes);
  unsigned w[2 * n];
#pragma unroll
  for (int k = 0; k < n; ++k) w[k] = low.element[k], w[n + k] = high.element[k];
#pragma unroll
  for (int step = n / 2; step > 0; step /= 2) {
    const bool skip = (shift / 4 & step) != 0;
#pragma unroll
    for (int k = 0; k + step < 2 * n; ++k) w[k] = skip ? w[k + step] : w[k];
  }
#pragma unroll
  for (int k = 0; k < n; ++k) {
    out[k] = element >= 4 ? w[k] : rg_shift_words(w[k], w[k + 1], shift % 4 * 8);
  }
}

template <typename T, int V>
RG_INLINE void rg_load_pack_shifted(const T* p, int64_t i, rg_vector<T, V>* out) {
  rg_load_shifted<V * sizeof(T), sizeof(T)>(p + i, reinterpret_cast<unsigned*>(&out->word));
}

template <int V, typename T>
RG_INLINE void rg_load_vec_shifted(T* p, int64_t i, typename rg_compute<T>::type* out) {
  rg_vector<typename rg_plain<T>::type, V> v;
  rg_load_pack_shifted(p, i, &v);
#pragma unroll
  for (int k = 0; k < V; ++k) out[k] = rg_widen(v.element[k]);
}

template <int V, typename T>
RG_INLINE void rg_copy_ahead(T* to, int64_t at, const T* from, int64_t i) {
  rg_copy_bytes<V * static_cast<int>(sizeof(T))>(to + at, from + i);
}

template <typename T, int V>
RG_INLINE typename rg_compute<T>::type rg_lane(const rg_vector<T, V>& pack, int lane) {
  return rg_widen(pack.element[lane]);
}

// From here on the compiler does not know what the pack holds: it widens its lanes again where they are
// used again, and does not keep them all in registers meanwhile.
RG_INLINE void rg_hide(unsigned char&) {}
RG_INLINE void rg_hide(unsigned short&) {}
RG_INLINE void rg_hide(uint2& words) { rg_hide(words.x), rg_hide(words.y); }
RG_INLINE void rg_hide(uint4& words) {
  rg_hide(words.x), rg_hide(words.y), rg_hide(words.z), rg_hide(words.w);
}
template <typename T, int V, int N>
RG_INLINE void rg_forget(rg_vector<T, V> (&packs)[N]) {
#pragma unroll
  for (int n = 0; n < N; ++n) rg_hide(packs[n].word);
}

template <typename T, int V>
RG_INLINE void rg_narrow_all(const typename rg_compute<T>::type* in, rg_vector<T, V>* out) {
#pragma unroll
  for (int k = 0; k < V; ++k) out->element[k] = rg_narrow(in[k], static_cast<T*>(nullptr));
}
template <typename T, int V>
RG_INLINE void rg_narrow_pairs(const float* in, rg_vector<T, V>* out) {
  unsigned* const words = reinterpret_cast<unsigned*>(&out->word);
#pragma unroll
  for (int k = 0; k < V / 2; ++k) {
    words[k] = rg_narrow_two(in[2 * k], in[2 * k + 1], static_cast<T*>(nullptr));
  }
  if (V % 2 != 0) out->element[V - 1] = rg_narrow(in[V - 1], static_cast<T*>(nullptr));
}
template <typename T, int V>
RG_INLINE void rg_narrow_bytes(const float* in, rg_vector<T, V>* out) {
  unsigned short* const pairs = reinterpret_cast<unsigned short*>(&out->word);
#pragma unroll
  for (int k = 0; k < V / 2; ++k) {
    pairs[k] = static_cast<unsigned short>(
        rg_narrow_two(in[2 * k], in[2 * k + 1], static_cast<T*>(nullptr)));
  }
  if (V % 2 != 0) out->element[V - 1] = rg_narrow(in[V - 1], static_cast<T*>(nullptr));
}
template <int V>
RG_INLINE void rg_narrow_all(const float* in, rg_vector<rg_f8e4m3, V>* out) { rg_narrow_bytes(in, out); }
template <int V>
RG_INLINE void rg_narrow_all(const float* in, rg_vector<rg_f8e5m2, V>* out) { rg_narrow_bytes(in, out); }
template <int V>
RG_INLINE void rg_narrow_all(const float* in, rg_vector<rg_bf16, V>* out) { rg_narrow_pairs(in, out); }
template <int V>
RG_INLINE void rg_narrow_all(const float* in, rg_vector<rg_fp16, V>* out) { rg_narrow_pairs(in, out); }

template <int V, typename T>
RG_INLINE void rg_store_vec(T* p, int64_t i, const typename rg_compute<T>::type* in) {
  rg_vector<T, V> v;
  rg_narrow_all(in, &v);
  *reinterpret_cast<typename rg_word<V * sizeof(T)>::type*>(p + i) = v.word;
}

template <int V, typename T>
RG_INLINE void rg_store_vec_once(T* p, int64_t i, const typename rg_compute<T>::type* in) {
  rg_vector<T, V> v;
  rg_narrow_all(in, &v);
  RG_STORE_ONCE(reinterpret_cast<typename rg_word<V * sizeof(T)>::type*>(p + i), v.word);
}

// The same of values that are NaN or lie within the type's numbers: none has to be looked at again.
template <typename T, int V>
RG_INLINE void rg_narrow_all_within(const typename rg_compute<T>::type* in, rg_vector<T, V>* out) {
  rg_narrow_all(in, out);
}
#ifdef RG_FP8_CONVERSIONS
template <typename T, int V>
RG_INLINE void rg_narrow_bytes_within(const float* in, rg_vector<T, V>* out) {
  unsigned short* const pairs = reinterpret_cast<unsigned short*>(&out->word);
#pragma unroll
  for (int k = 0; k < V / 2; ++k) {
    pairs[k] = static_cast<unsigned short>(
        rg_narrow_two_within(in[2 * k], in[2 * k + 1], static_cast<T*>(nullptr)));
  }
  if (V % 2 != 0) out->element[V - 1] = rg_narrow(in[V - 1], static_cast<T*>(nullptr));
}
template <int V>
RG_INLINE void rg_narrow_all_within(const float* in, rg_vector<rg_f8e4m3, V>* out) {
  rg_narrow_bytes_within(in, out);
}
template <int V>
RG_INLINE void rg_narrow_all_within(const float* in, rg_vector<rg_f8e5m2, V>* out) {
  rg_narrow_bytes_within(in, out);
}
#endif
template <int V, typename T>
RG_INLINE void rg_store_vec_within(T* p, int64_t i, const typename rg_compute<T>::type* in) {
  rg_vector<T, V> v;
  rg_narrow_all_within(in, &v);
  *reinterpret_cast<typename rg_word<V * sizeof(T)>::type*>(p + i) = v.word;
}

// Elements that lie in shared memory, in pieces of P at multiples of their size, by one access.
template <int V, int P, typename T>
RG_INLINE void rg_store_from(T* to, int64_t i, const T* from, int at) {
  constexpr int words = P * static_cast<int>(sizeof(T)) / 4, pieces = V / P;
  rg_vector<unsigned, words * pieces> whole;
#pragma unroll
  for (int k = 0; k < pieces; ++k) {
    rg_vector<unsigned, words> piece;
    piece.word = *reinterpret_cast<const typename rg_word<words * 4>::type*>(from + at + k * P);
#pragma unroll
    for (int w = 0; w < words; ++w) whole.element[k * words + w] = piece.element[w];
  }
  *reinterpret_cast<typename rg_word<words * pieces * 4>::type*>(to + i) = whole.word;
}

// --- arithmetic: the accurate functions of the device library, but for erf ---

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
RG_MATH(exp, exp)
RG_MATH(log, log)
RG_MATH(exp2, exp2)
RG_MATH(log2, log2)
RG_MATH(log1p, log1p)
RG_MATH(tanh, tanh)
RG_MATH(sin, sin)
RG_MATH(cos, cos)
RG_INLINE double rg_erf(double v) { return erf(v); }
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

}  // namespace

std::string CudaPrelude() { return absl::StrCat(kCudaOnly, kShared); }

std::string HipPrelude() { return absl::StrCat(kHipOnly, kShared); }

}  // namespace retrograd
