#include "codegen/preludes/gpu/parts.h"

namespace retrograd {

const char kCudaDialect[] = R"(
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
// The 32 threads that vote together store where `there`; of several at one element any one's value
// stands, for all to see.
#define RG_STORE_ANY(there, element, value) \
  do {                                      \
    if (there) element = value;             \
    RG_WARP_BARRIER();                      \
  } while (false)

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
)";

}  // namespace retrograd
