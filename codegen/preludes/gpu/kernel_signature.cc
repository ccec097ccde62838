#include "codegen/preludes/gpu/parts.h"

namespace retrograd {

const char kKernelSignature[] = R"(
#define RG_INLINE __device__ __forceinline__

template <int n>
struct rg_slots {
  int at[n];
};

#define RG_KERNEL(name, threads, arguments)                     \
  extern "C" __global__ void __launch_bounds__(threads) name(   \
      void* const* __restrict__ rg_table, const RG_GRID_CONSTANT rg_slots<arguments> rg_slot)
// The same for at least so many blocks on an SM at once: then the compiler takes as many registers
// as those leave, neither a few more nor so few that it spills to make room for more blocks.
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
)";

}  // namespace retrograd
