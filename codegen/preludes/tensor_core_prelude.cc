#include "codegen/preludes/tensor_core_prelude.h"

#include "absl/strings/str_cat.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

constexpr char kTiles[] = R"(
// --- tiles of sums ---

template <typename S>
struct rg_tile {
  static constexpr int elements = 256 / RG_WARP;
  S at[elements];
};
)";

// Every lane reads what its own sums need.
constexpr char kPlainSums[] = R"(
template <bool across_a, bool across_b, typename S, int rows, int columns, typename A, typename B>
RG_INLINE void rg_add_products(rg_tile<S> (&sums)[rows][columns], A a, int a_at, int a_pitch, B b,
                               int b_at, int b_pitch, int lane) {
#pragma unroll
  for (int m = 0; m < rows; ++m) {
#pragma unroll
    for (int n = 0; n < columns; ++n) {
#pragma unroll
      for (int i = 0; i < rg_tile<S>::elements; ++i) {
        const int row = 16 * m + rg_tile_row(lane, i), column = 16 * n + rg_tile_column(lane, i);
        S sum = sums[m][n].at[i];
        for (int k = 0; k < 16; ++k) {
          const S x = rg_load(a, a_at + (across_a ? k * a_pitch + row : row * a_pitch + k));
          const S y = rg_load(b, b_at + (across_b ? k * b_pitch + column : column * b_pitch + k));
          sum += x * y;
        }
        sums[m][n].at[i] = sum;
      }
    }
  }
}
)";

constexpr char kHost[] = R"(
inline int rg_tile_row(int lane, int i) { return (i * RG_WARP + lane) / 16; }
inline int rg_tile_column(int lane, int i) { return (i * RG_WARP + lane) % 16; }
)";

constexpr char kHostMultiply[] = R"(
template <bool across_a, bool across_b, typename S, int rows, int columns, typename A, typename B>
inline void rg_multiply_tiles(rg_tile<S> (&sums)[rows][columns], A a, int a_at, int a_pitch, B b,
                              int b_at, int b_pitch, int lane) {
  rg_add_products<across_a, across_b>(sums, a, a_at, a_pitch, b, b_at, b_pitch, lane);
}

template <typename T>
struct rg_element_of;
template <typename T>
struct rg_element_of<T*> {
  typedef T type;
};
template <typename T>
struct rg_element_of<rg_checked_shared<T>> {
  typedef T type;
};

// One element is no copy of 4 bytes: it passes through registers.
struct rg_zero_copier {
  rg_host_thread& self;
  template <int V, typename To, typename From>
  void copy(To to, int64_t at, From from, int64_t i, bool inside) const {
    typedef typename rg_element_of<To>::type element;
    if (inside && V * sizeof(element) >= 4) {
      rg_copier{self}.ahead<V>(to, at, from, i);
      return;
    }
    for (int k = 0; k < V; ++k) {
      const typename rg_storage<element>::compute zero = 0;
      rg_store(to, at + k, inside ? rg_load(from, i + k) : zero);
    }
  }
};
#define rg_copy_or_zero rg_zero_copier{rg_self}.copy
)";

constexpr char kCuda[] = R"(
// As mma.m16n8k16 deals them out, twice.
RG_INLINE int rg_tile_row(int lane, int i) { return lane / 4 + i / 2 % 2 * 8; }
RG_INLINE int rg_tile_column(int lane, int i) { return lane % 4 * 2 + i % 2 + i / 4 * 8; }
)";

constexpr char kCudaMultiply[] = R"(
// Four 8 x 8 matrices, the lane's address being that of row lane % 8 of matrix lane / 8; or their
// transposes.
template <bool transposed>
RG_INLINE void rg_load_matrices(const void* row, unsigned (&out)[4]) {
  const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(row));
  if constexpr (transposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3]) : "r"(at) : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3]) : "r"(at) : "memory");
  }
}
#define RG_MMA(type)                                                                            \
  asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 {%0, %1, %2, %3}, "          \
      "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                           \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                          \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
RG_INLINE void rg_mma(float* d, const unsigned (&a)[4], unsigned b0, unsigned b1, rg_bf16*) {
  RG_MMA("bf16");
}
RG_INLINE void rg_mma(float* d, const unsigned (&a)[4], unsigned b0, unsigned b1, rg_fp16*) {
  RG_MMA("f16");
}

template <bool across_a, bool across_b, int rows, int columns, typename T>
RG_INLINE void rg_multiply_halves(rg_tile<float> (&sums)[rows][columns], T* a, int a_at, int a_pitch,
                                  T* b, int b_at, int b_pitch, int lane) {
  // Rows and columns of the four matrices, and along the sum: of the first operand the rows change
  // first, of the second one the sum.
  const int first = lane % 8 + lane / 8 % 2 * 8, second = lane / 16 * 8;
  const int third = lane / 8 % 2 * 8, fourth = lane % 8 + lane / 16 * 8;
  unsigned x[rows][4], y[columns][4];
#pragma unroll
  for (int m = 0; m < rows; ++m) {
    if constexpr (across_a) {
      rg_load_matrices<true>(a + a_at + fourth * a_pitch + third + 16 * m, x[m]);
    } else {
      rg_load_matrices<false>(a + a_at + (first + 16 * m) * a_pitch + second, x[m]);
    }
  }
#pragma unroll
  for (int n = 0; n < columns; ++n) {
    if constexpr (across_b) {
      rg_load_matrices<true>(b + b_at + first * b_pitch + second + 16 * n, y[n]);
    } else {
      rg_load_matrices<false>(b + b_at + (fourth + 16 * n) * b_pitch + third, y[n]);
    }
  }
#pragma unroll
  for (int m = 0; m < rows; ++m) {
#pragma unroll
    for (int n = 0; n < columns; ++n) {
      rg_mma(sums[m][n].at, x[m], y[n][0], y[n][1], static_cast<T*>(nullptr));
      rg_mma(sums[m][n].at + 4, x[m], y[n][2], y[n][3], static_cast<T*>(nullptr));
    }
  }
}
)";

constexpr char kHip[] = R"(
// As mfma_f32_16x16x16 deals them out.
RG_INLINE int rg_tile_row(int lane, int i) { return lane / 16 * 4 + i; }
RG_INLINE int rg_tile_column(int lane, int) { return lane % 16; }
)";

constexpr char kHipMultiply[] = R"(
typedef short rg_four_shorts __attribute__((__vector_size__(8)));
typedef _Float16 rg_four_halves __attribute__((__vector_size__(8)));
typedef float rg_four_floats __attribute__((__vector_size__(16)));

#if defined(__gfx90a__) || defined(__gfx940__) || defined(__gfx941__) || defined(__gfx942__)
RG_INLINE rg_four_floats rg_mfma(rg_four_shorts a, rg_four_shorts b, rg_four_floats d, rg_bf16*) {
  return __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, d, 0, 0, 0);
}
RG_INLINE rg_four_floats rg_mfma(rg_four_shorts a, rg_four_shorts b, rg_four_floats d, rg_fp16*) {
  rg_four_halves x, y;
  __builtin_memcpy(&x, &a, 8);
  __builtin_memcpy(&y, &b, 8);
  return __builtin_amdgcn_mfma_f32_16x16x16f16(x, y, d, 0, 0, 0);
}

// Four elements along the sum, of the lane's row or column.
template <bool across, typename T>
RG_INLINE rg_four_shorts rg_four_along(const T* from, int pitch, int line, int lane) {
  rg_four_shorts out;
  const int k = lane / 16 * 4;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    out[i] = static_cast<short>(from[across ? (k + i) * pitch + line : line * pitch + k + i].bits);
  }
  return out;
}

template <bool across_a, bool across_b, int rows, int columns, typename T>
RG_INLINE void rg_multiply_halves(rg_tile<float> (&sums)[rows][columns], T* a, int a_at, int a_pitch,
                                  T* b, int b_at, int b_pitch, int lane) {
  rg_four_shorts x[rows], y[columns];
#pragma unroll
  for (int m = 0; m < rows; ++m) {
    x[m] = rg_four_along<across_a>(a + a_at, a_pitch, 16 * m + lane % 16, lane);
  }
#pragma unroll
  for (int n = 0; n < columns; ++n) {
    y[n] = rg_four_along<across_b>(b + b_at, b_pitch, 16 * n + lane % 16, lane);
  }
#pragma unroll
  for (int m = 0; m < rows; ++m) {
#pragma unroll
    for (int n = 0; n < columns; ++n) {
      rg_four_floats d;
      __builtin_memcpy(&d, sums[m][n].at, 16);
      d = rg_mfma(x[m], y[n], d, static_cast<T*>(nullptr));
      __builtin_memcpy(sums[m][n].at, &d, 16);
    }
  }
}
#else
template <bool across_a, bool across_b, int rows, int columns, typename T>
RG_INLINE void rg_multiply_halves(rg_tile<float> (&sums)[rows][columns], T* a, int a_at, int a_pitch,
                                  T* b, int b_at, int b_pitch, int lane) {
  rg_add_products<across_a, across_b>(sums, a, a_at, a_pitch, b, b_at, b_pitch, lane);
}
#endif
)";

constexpr char kGpuMultiply[] = R"(
template <bool across_a, bool across_b, int rows, int columns>
RG_INLINE void rg_multiply_tiles(rg_tile<float> (&sums)[rows][columns], rg_bf16* a, int a_at, int a_pitch,
                                 rg_bf16* b, int b_at, int b_pitch, int lane) {
  rg_multiply_halves<across_a, across_b>(sums, a, a_at, a_pitch, b, b_at, b_pitch, lane);
}
template <bool across_a, bool across_b, int rows, int columns>
RG_INLINE void rg_multiply_tiles(rg_tile<float> (&sums)[rows][columns], rg_fp16* a, int a_at, int a_pitch,
                                 rg_fp16* b, int b_at, int b_pitch, int lane) {
  rg_multiply_halves<across_a, across_b>(sums, a, a_at, a_pitch, b, b_at, b_pitch, lane);
}
template <bool across_a, bool across_b, typename S, int rows, int columns, typename T>
RG_INLINE void rg_multiply_tiles(rg_tile<S> (&sums)[rows][columns], T* a, int a_at, int a_pitch, T* b,
                                 int b_at, int b_pitch, int lane) {
  rg_add_products<across_a, across_b>(sums, a, a_at, a_pitch, b, b_at, b_pitch, lane);
}
)";

// The address of what is not copied is that of the tensor's first element, though nothing is read.
constexpr char kCudaCopy[] = R"(
template <int V, typename T, typename I>
RG_INLINE void rg_copy_or_zero(T* to, int at, const T* from, I i, bool inside) {
  constexpr int bytes = V * static_cast<int>(sizeof(T));
  if constexpr (bytes >= 4) {
    const unsigned target = static_cast<unsigned>(__cvta_generic_to_shared(to + at));
    const T* const source = from + (inside ? i : 0);
    const int copied = inside ? bytes : 0;
    if constexpr (bytes == 16) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(source), "r"(copied)
                   : "memory");
    } else {
      asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(target), "l"(source), "n"(bytes),
                   "r"(copied) : "memory");
    }
  } else {
    T none;
    none.bits = 0;
    to[at] = inside ? from[i] : none;
  }
}
)";

constexpr char kHipCopy[] = R"(
template <int V, typename T, typename I>
RG_INLINE void rg_copy_or_zero(T* to, int at, const T* from, I i, bool inside) {
  rg_vector<T, V> pack;
  __builtin_memset(&pack, 0, sizeof pack);
  if (inside) rg_load_pack(from, i, &pack);
  __builtin_memcpy(__builtin_assume_aligned(to + at, V * sizeof(T)), &pack, sizeof pack);
}
)";

}  // namespace

std::string TensorCorePrelude(Dialect dialect) {
  switch (dialect) {
    case Dialect::kCuda:
      return absl::StrCat(kTiles, kCuda, kPlainSums, kCudaMultiply, kGpuMultiply, kCudaCopy);
    case Dialect::kHip:
      return absl::StrCat(kTiles, kHip, kPlainSums, kHipMultiply, kGpuMultiply, kHipCopy);
    case Dialect::kHost: return absl::StrCat(kTiles, kHost, kPlainSums, kHostMultiply);
  }
  RG_CHECK(false);
}

}  // namespace retrograd
