#include "codegen/attention/wide_tiles_prelude.h"

#include "absl/strings/str_cat.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

constexpr char kCuda[] = R"(
RG_INLINE void rg_mma_tf32(float* d, const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, "
      "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// The upper 11 bits of the number, and what is left, of which the instruction takes as many.
RG_INLINE void rg_split_tf32(float v, unsigned& high, unsigned& low) {
  high = rg_bits(v) & 0xffffe000u;
  low = rg_bits(v - rg_from_bits(high));
}
// Two elements of a line of the operand, of a lane whose first line and first element lie at `from`.
template <bool across, bool pairs>
RG_INLINE void rg_two_of_line(const float* from, int pitch, int line, int k, float& x, float& y) {
  if constexpr (across) {
    x = from[k * pitch + line], y = from[(k + 4) * pitch + line];
  } else if constexpr (pairs) {
    const float2 both = *reinterpret_cast<const float2*>(from + line * pitch + k);
    x = both.x, y = both.y;
  } else {
    x = from[line * pitch + k], y = from[line * pitch + k + 4];
  }
}

// The order of a sum is free: the two terms of a lane lie side by side where both operands' lines
// are along the sum, else four apart. Then no two lanes meet in a bank, if eight times an odd number
// of words lies between lines.
template <bool across_a, bool across_b, int rows, int columns>
RG_INLINE void rg_multiply_wide_tiles(rg_tile<float> (&sums)[rows][columns], float* a, int64_t a_at,
                                      int a_pitch, float* b, int64_t b_at, int b_pitch, int lane) {
  constexpr bool pairs = !across_a && !across_b;
  constexpr int group = columns % 2 == 0 ? 4 : 2;  // products that do not wait for each other
  const int line = lane / 4, step = pairs ? lane % 4 * 2 : lane % 4;
  const float* const of_a = a + (a_at + (across_a ? step * a_pitch + line : line * a_pitch + step));
  const float* const of_b = b + (b_at + (across_b ? step * b_pitch + line : line * b_pitch + step));
#pragma unroll
  for (int k = 0; k < 16; k += 8) {
    unsigned high[rows][4], low[rows][4];
#pragma unroll
    for (int m = 0; m < rows; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float x, y;
        rg_two_of_line<across_a, pairs>(of_a, a_pitch, 16 * m + 8 * half, k, x, y);
        rg_split_tf32(x, high[m][half], low[m][half]);
        rg_split_tf32(y, high[m][2 + half], low[m][2 + half]);
      }
    }
#pragma unroll
    for (int n0 = 0; n0 < 2 * columns; n0 += group) {
      unsigned high_b[group][2], low_b[group][2];
#pragma unroll
      for (int n = 0; n < group; ++n) {
        float x, y;
        rg_two_of_line<across_b, pairs>(of_b, b_pitch, 8 * (n0 + n), k, x, y);
        rg_split_tf32(x, high_b[n][0], low_b[n][0]);
        rg_split_tf32(y, high_b[n][1], low_b[n][1]);
      }
#pragma unroll
      for (int product = 0; product < 3; ++product) {
#pragma unroll
        for (int n = 0; n < group; ++n) {
#pragma unroll
          for (int m = 0; m < rows; ++m) {
            float* const d = sums[m][(n0 + n) / 2].at + n % 2 * 4;
            rg_mma_tf32(d, product == 0 ? low[m] : high[m], product == 1 ? low_b[n] : high_b[n]);
          }
        }
      }
    }
  }
}

RG_INLINE void rg_mma_f64(double* d, double a, double b) {
  asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
      : "+d"(d[0]), "+d"(d[1]) : "d"(a), "d"(b));
}
template <bool across_a, bool across_b, int rows, int columns>
RG_INLINE void rg_multiply_wide_tiles(rg_tile<double> (&sums)[rows][columns], double* a, int64_t a_at,
                                      int a_pitch, double* b, int64_t b_at, int b_pitch, int lane) {
  const int line = lane / 4;
#pragma unroll
  for (int first = 0; first < 16; first += 4) {
    const int k = first + lane % 4;
    double x[rows][2];
#pragma unroll
    for (int m = 0; m < rows; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = 16 * m + 8 * half + line;
        x[m][half] = a[a_at + (across_a ? k * a_pitch + row : row * a_pitch + k)];
      }
    }
#pragma unroll
    for (int n = 0; n < 2 * columns; ++n) {
      const int column = 8 * n + line;
      const double y = b[b_at + (across_b ? k * b_pitch + column : column * b_pitch + k)];
#pragma unroll
      for (int m = 0; m < rows; ++m) {
        double* const d = sums[m][n / 2].at + n % 2 * 4;
        rg_mma_f64(d, x[m][0], y);
        rg_mma_f64(d + 2, x[m][1], y);
      }
    }
  }
}
)";

constexpr char kHip[] = R"(
#if defined(__gfx90a__) || defined(__gfx940__) || defined(__gfx941__) || defined(__gfx942__)
template <bool across_a, bool across_b, int rows, int columns>
RG_INLINE void rg_multiply_wide_tiles(rg_tile<float> (&sums)[rows][columns], float* a, int64_t a_at,
                                      int a_pitch, float* b, int64_t b_at, int b_pitch, int lane) {
#pragma unroll
  for (int first = 0; first < 16; first += 4) {
    const int k = first + lane / 16;
    float x[rows], y[columns];
#pragma unroll
    for (int m = 0; m < rows; ++m) {
      const int row = 16 * m + lane % 16;
      x[m] = a[a_at + (across_a ? k * a_pitch + row : row * a_pitch + k)];
    }
#pragma unroll
    for (int n = 0; n < columns; ++n) {
      const int column = 16 * n + lane % 16;
      y[n] = b[b_at + (across_b ? k * b_pitch + column : column * b_pitch + k)];
    }
#pragma unroll
    for (int m = 0; m < rows; ++m) {
#pragma unroll
      for (int n = 0; n < columns; ++n) {
        rg_four_floats d;
        __builtin_memcpy(&d, sums[m][n].at, 16);
        d = __builtin_amdgcn_mfma_f32_16x16x4f32(x[m], y[n], d, 0, 0, 0);
        __builtin_memcpy(sums[m][n].at, &d, 16);
      }
    }
  }
}
#endif
)";

// Of other types as rg_multiply_tiles.
constexpr char kOthers[] = R"(
template <bool across_a, bool across_b, typename S, int rows, int columns, typename T>
RG_INLINE void rg_multiply_wide_tiles(rg_tile<S> (&sums)[rows][columns], T* a, int64_t a_at, int a_pitch,
                                      T* b, int64_t b_at, int b_pitch, int lane) {
  rg_multiply_tiles<across_a, across_b>(sums, a, a_at, a_pitch, b, b_at, b_pitch, lane);
}
)";

constexpr char kHost[] = R"(
template <bool across_a, bool across_b, typename S, int rows, int columns, typename A, typename B>
inline void rg_multiply_wide_tiles(rg_tile<S> (&sums)[rows][columns], A a, int64_t a_at, int a_pitch,
                                   B b, int64_t b_at, int b_pitch, int lane) {
  rg_add_products<across_a, across_b>(sums, a, static_cast<int>(a_at), a_pitch, b, static_cast<int>(b_at), b_pitch,
                                      lane);
}
)";

constexpr char kRows[] = R"(
template <typename S, int columns>
RG_INLINE void rg_clear_tiles(rg_tile<S> (&sums)[1][columns]) {
#pragma unroll
  for (int n = 0; n < columns; ++n) {
#pragma unroll
    for (int e = 0; e < rg_tile<S>::elements; ++e) sums[0][n].at[e] = 0;
  }
}
template <int channels, typename S, int columns, typename P>
RG_INLINE void rg_multiply_rows(rg_tile<S> (&sums)[1][columns], P tiles, int64_t own, int64_t other, int pitch,
                                int lane) {
#pragma unroll
  for (int k = 0; k < channels; k += 16) {
    rg_multiply_wide_tiles<false, false>(sums, tiles, own + k, pitch, tiles, other + k, pitch, lane);
  }
}
template <int terms, bool apart, typename S, int columns, typename P>
RG_INLINE void rg_add_rows(rg_tile<S> (&sums)[1][columns], P tiles, int64_t numbers, int numbers_pitch,
                           int64_t other, int pitch, int lane) {
  if constexpr (!apart) {
#pragma unroll
    for (int k = 0; k < terms; k += 16) {
      rg_multiply_wide_tiles<false, true>(sums, tiles, numbers + k, numbers_pitch, tiles,
                                          other + k * pitch, pitch, lane);
    }
  } else {
    constexpr int group = columns % 4 == 0 ? 4 : columns % 3 == 0 ? 3 : columns % 5 == 0 ? 5 : columns;
#pragma unroll
    for (int first = 0; first < columns; first += group) {
      rg_tile<S> part[1][group];
      rg_clear_tiles(part);
#pragma unroll
      for (int k = 0; k < terms; k += 16) {
        rg_multiply_wide_tiles<false, true>(part, tiles, numbers + k, numbers_pitch, tiles,
                                            other + k * pitch + 16 * first, pitch, lane);
      }
#pragma unroll
      for (int n = 0; n < group; ++n) {
#pragma unroll
        for (int e = 0; e < rg_tile<S>::elements; ++e) sums[0][first + n].at[e] += part[0][n].at[e];
      }
    }
  }
}
)";

}  // namespace

std::string WideTilesPrelude(Dialect dialect) {
  switch (dialect) {
    case Dialect::kCuda: return absl::StrCat(kCuda, kOthers, kRows);
    case Dialect::kHip: return absl::StrCat(kHip, kOthers, kRows);
    case Dialect::kHost: return absl::StrCat(kHost, kRows);
  }
  RG_CHECK(false);
}

}  // namespace retrograd
