// The kernels that the device of a GPU itself needs, as source text for either vendor, and the C++
// sides of their parameters.
#ifndef RETROGRAD_RUNTIME_GPU_GPU_SUPPORT_KERNELS_H_
#define RETROGRAD_RUNTIME_GPU_GPU_SUPPORT_KERNELS_H_

#include <cstdint>

#include "graph/base/tensor_type.h"

namespace retrograd {

// Parameters of a launch are at most 4096 bytes, and lie in the launch: whoever captures one keeps
// them.
inline constexpr int kTableEntries = 320;

// Entries of a pointer table that change.
struct TableEntries {
  int32_t count = 0;
  int32_t slot[kTableEntries];
  uint64_t address[kTableEntries];
};
static_assert(sizeof(TableEntries) + 8 <= 4096);

// A tensor to be copied element by element.
struct StridedCopy {
  uint64_t to = 0, from = 0;
  int32_t rank = 0, element_bytes = 0;
  int64_t elements = 0;
  int64_t shape[kMaxRank], to_strides[kMaxRank], from_strides[kMaxRank];  // strides in elements
};
static_assert(kMaxRank == 12, "the text below says so too");

inline constexpr int kCopyThreads = 256;

// Elements of 1, 2 or 4 bytes that get one value.
struct MemoryFill {
  uint64_t to = 0, elements = 0;
  uint32_t value = 0, element_bytes = 0;
};

inline constexpr int kFillThreads = 256;

inline constexpr char kGpuSupportKernels[] = R"(
#if defined(__HIPCC_RTC__)
#define __grid_constant__
#endif
typedef unsigned long long u64;
typedef long long i64;
struct TableEntries {
  int count;
  int slot[320];
  u64 address[320];
};
struct StridedCopy {
  u64 to, from;
  int rank, element_bytes;
  i64 elements, shape[12], to_strides[12], from_strides[12];
};

extern "C" __global__ void __launch_bounds__(320) rg_set_table(
    u64* table, const __grid_constant__ TableEntries entries) {
  const int i = threadIdx.x;
  if (i < entries.count) table[entries.slot[i]] = entries.address[i];
}

template <typename T>
__device__ void copy_elements(const StridedCopy& c) {
  for (i64 i = static_cast<i64>(blockIdx.x) * 256 + threadIdx.x; i < c.elements;
       i += static_cast<i64>(gridDim.x) * 256) {
    i64 rest = i, to = 0, from = 0;
    for (int d = c.rank - 1; d >= 0; --d) {
      const i64 at = rest % c.shape[d];
      rest /= c.shape[d];
      to += at * c.to_strides[d];
      from += at * c.from_strides[d];
    }
    reinterpret_cast<T*>(c.to)[to] = reinterpret_cast<const T*>(c.from)[from];
  }
}

extern "C" __global__ void __launch_bounds__(256) rg_copy_strided(
    const __grid_constant__ StridedCopy c) {
  switch (c.element_bytes) {
    case 1: copy_elements<unsigned char>(c); break;
    case 2: copy_elements<unsigned short>(c); break;
    case 4: copy_elements<unsigned>(c); break;
    default: copy_elements<u64>(c); break;
  }
}

struct MemoryFill {
  u64 to, elements;
  unsigned value, element_bytes;
};
extern "C" __global__ void __launch_bounds__(256) rg_fill(const __grid_constant__ MemoryFill f) {
  for (u64 i = blockIdx.x * u64{256} + threadIdx.x; i < f.elements; i += u64{256} * gridDim.x) {
    switch (f.element_bytes) {
      case 1: reinterpret_cast<unsigned char*>(f.to)[i] = f.value; break;
      case 2: reinterpret_cast<unsigned short*>(f.to)[i] = f.value; break;
      default: reinterpret_cast<unsigned*>(f.to)[i] = f.value; break;
    }
  }
}

extern "C" __global__ void rg_spin(i64 cycles) {
  const i64 start = clock64();
  while (clock64() - start < cycles) {
  }
}
)";

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_GPU_GPU_SUPPORT_KERNELS_H_
