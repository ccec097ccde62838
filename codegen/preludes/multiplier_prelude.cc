#include "codegen/preludes/multiplier_prelude.h"

namespace retrograd {
namespace {

constexpr char kMultiplier[] = R"(
// --- matrix products with an epilogue: sm_90a ---

// A block has a warpgroup that loads and two that multiply, each a tile of m x n of its own: while
// one makes the epilogue of its tile, the other keeps the tensor cores busy. Blocks form clusters
// whose tiles lie side by side: each loads half of what they share for all.
#define RG_MULTIPLIER(name, threads, arguments) RG_MULTIPLIER_CLUSTER(name, threads, arguments, 2)
#define RG_MULTIPLIER_CLUSTER(name, threads, arguments, blocks)                                 \
  extern "C" __global__ void __cluster_dims__(blocks, 1, 1) __launch_bounds__(threads, 1) name( \
      void* const* __restrict__ rg_table, const RG_GRID_CONSTANT rg_slots<arguments> rg_slot,   \
      const RG_GRID_CONSTANT rg_map rg_map_a, const RG_GRID_CONSTANT rg_map rg_map_b)
// The same with addresses in place of the table.
#define RG_MULTIPLIER_DIRECT(name, threads, arguments, blocks)                                  \
  RG_INLINE void name##_body(void* const* __restrict__ rg_table, const rg_in_order& rg_slot,    \
                             const rg_map& rg_map_a, const rg_map& rg_map_b);                   \
  extern "C" __global__ void __cluster_dims__(blocks, 1, 1) __launch_bounds__(threads, 1) name( \
      const RG_GRID_CONSTANT rg_addresses<arguments> rg_given,                                  \
      const RG_GRID_CONSTANT rg_map rg_map_a, const RG_GRID_CONSTANT rg_map rg_map_b) {         \
    name##_body(rg_given.at, rg_in_order(), rg_map_a, rg_map_b);                                \
  }                                                                                             \
  RG_INLINE void name##_body(void* const* __restrict__ rg_table, const rg_in_order& rg_slot,    \
                             const rg_map& rg_map_a, const rg_map& rg_map_b)

// At the same barrier of a block of the cluster.
RG_INLINE void rg_bar_arrive_at(unsigned bar, unsigned block) {
  asm volatile(
      "{\n"
      ".reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
      "}\n" ::"r"(bar), "r"(block) : "memory");
}
// To the same place in one block or in those of the cluster that `to_all` names.
template <int blocks>
RG_INLINE void rg_map_load(unsigned to, const rg_map* map, unsigned bar, int x, int y, int to_all) {
  if constexpr (blocks == 1) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4}], [%2];"
        ::"r"(to), "l"(map), "r"(bar), "r"(x), "r"(y) : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;"
        ::"r"(to), "l"(map), "r"(bar), "r"(x), "r"(y), "h"(static_cast<unsigned short>(to_all))
        : "memory");
  }
}
// The same of one of several matrices.
template <int blocks>
RG_INLINE void rg_map_load(unsigned to, const rg_map* map, unsigned bar, int x, int y, int matrix,
                           int to_all) {
  if constexpr (blocks == 1) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5}], [%2];"
        ::"r"(to), "l"(map), "r"(bar), "r"(x), "r"(y), "r"(matrix) : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;"
        ::"r"(to), "l"(map), "r"(bar), "r"(x), "r"(y), "r"(matrix),
          "h"(static_cast<unsigned short>(to_all))
        : "memory");
  }
}
RG_INLINE void rg_group_barrier(int id) {
  asm volatile("bar.sync %0, 128;" ::"r"(id) : "memory");
}

// d (64 x n, fp32) += a (64 x k) b (k x n) from shared memory, n of 64, 128 and 256, k of 32 bytes. Operands
// of 16 bits may lie across the sum, those of 8 bits lie along it.
#define RG_MULTIPLY_64(k, type, ways)                                                     \
  asm volatile(                                                                           \
      "{\n"                                                                               \
      ".reg .pred p;\n"                                                                   \
      "setp.ne.b32 p, %34, 0;\n"                                                          \
      "wgmma.mma_async.sync.aligned.m64n64k" k ".f32." type "." type " "                  \
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, " \
      "%32, %33, p, 1, 1" ways ";\n"                                                      \
      "}\n"                                                                               \
      : RG_SIXTEEN(d, 0), RG_SIXTEEN(d, 16)                                               \
      : "l"(a), "l"(b), "r"(add), "n"(a_across), "n"(b_across))
#define RG_MULTIPLY_128(k, type, ways)                                                    \
  asm volatile(                                                                           \
      "{\n"                                                                               \
      ".reg .pred p;\n"                                                                   \
      "setp.ne.b32 p, %66, 0;\n"                                                          \
      "wgmma.mma_async.sync.aligned.m64n128k" k ".f32." type "." type " "                 \
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "  \
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "  \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, " \
      "%64, %65, p, 1, 1" ways ";\n"                                                      \
      "}\n"                                                                               \
      : RG_SIXTEEN(d, 0), RG_SIXTEEN(d, 16), RG_SIXTEEN(d, 32), RG_SIXTEEN(d, 48)         \
      : "l"(a), "l"(b), "r"(add), "n"(a_across), "n"(b_across))
#define RG_MULTIPLY_256(k, type, ways)                                              \
  asm volatile(                                                                     \
      "{\n"                                                                         \
      ".reg .pred p;\n"                                                             \
      "setp.ne.b32 p, %130, 0;\n"                                                   \
      "wgmma.mma_async.sync.aligned.m64n256k" k ".f32." type "." type " "           \
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "                         \
      "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "                \
      "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "                \
      "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, "                \
      "%60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, "                \
      "%72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, "                \
      "%84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "                \
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, "        \
      "%108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, "    \
      "%120, %121, %122, %123, %124, %125, %126, %127}, "                           \
      "%128, %129, p, 1, 1" ways ";\n"                                              \
      "}\n"                                                                         \
      : RG_SIXTEEN(d, 0), RG_SIXTEEN(d, 16), RG_SIXTEEN(d, 32), RG_SIXTEEN(d, 48),  \
        RG_SIXTEEN(d, 64), RG_SIXTEEN(d, 80), RG_SIXTEEN(d, 96), RG_SIXTEEN(d, 112) \
      : "l"(a), "l"(b), "r"(add), "n"(a_across), "n"(b_across))
#define RG_MULTIPLY_OF(T, k, type, n, ways)                                                  \
  template <int a_across, int b_across>                                                      \
  RG_INLINE void rg_wgmma(T*, float (&d)[n / 2], unsigned long long a, unsigned long long b, \
                          int add) {                                                         \
    static_assert(sizeof(T) == 2 || (!a_across && !b_across));                               \
    RG_MULTIPLY_##n(k, type, ways);                                                          \
  }
RG_MULTIPLY_OF(rg_bf16, "16", "bf16", 64, ", %35, %36")
RG_MULTIPLY_OF(rg_bf16, "16", "bf16", 128, ", %67, %68")
RG_MULTIPLY_OF(rg_bf16, "16", "bf16", 256, ", %131, %132")
RG_MULTIPLY_OF(rg_fp16, "16", "f16", 64, ", %35, %36")
RG_MULTIPLY_OF(rg_fp16, "16", "f16", 128, ", %67, %68")
RG_MULTIPLY_OF(rg_fp16, "16", "f16", 256, ", %131, %132")
RG_MULTIPLY_OF(rg_f8e4m3, "32", "e4m3", 64, "")
RG_MULTIPLY_OF(rg_f8e4m3, "32", "e4m3", 128, "")
RG_MULTIPLY_OF(rg_f8e4m3, "32", "e4m3", 256, "")
RG_MULTIPLY_OF(rg_f8e5m2, "32", "e5m2", 64, "")
RG_MULTIPLY_OF(rg_f8e5m2, "32", "e5m2", 128, "")
RG_MULTIPLY_OF(rg_f8e5m2, "32", "e5m2", 256, "")

// Four matrices of 8 x 8 of fragments, narrowed, into shared memory, by rows of 16 bytes.
template <typename T>
RG_INLINE void rg_store_matrices(unsigned to, const float* d) {
  T* const type = nullptr;
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
               "r"(rg_narrow_two(d[0], d[1], type)), "r"(rg_narrow_two(d[2], d[3], type)),
               "r"(rg_narrow_two(d[4], d[5], type)), "r"(rg_narrow_two(d[6], d[7], type))
               : "memory");
}
// Sums of a tile from registers into `rows` x `columns` of fp32, from `to` on, or added to what is there.
// Of a box of 64 rows each thread has two rows and of each 8 columns two neighbours; of each 16 columns two
// threads swap a pair, and each has four neighbours, 16 bytes, of which four threads fill whole sectors.
template <int adds, int boxes, int count>
RG_INLINE void rg_store_sums(float* to, int64_t row_step, int rows, int columns,
                             const float (&d)[boxes][count], int warp, int lane) {
  const bool odd = lane % 2 != 0;
  const int first_row = 16 * warp + lane / 4, first_column = 8 * (lane % 2) + lane % 4 / 2 * 4;
  float* const first = to + (first_row * row_step + first_column);
  rows -= first_row;
  columns -= first_column;
#pragma unroll
  for (int c = 0; c < count / 4; c += 2) {
#pragma unroll
    for (int h = 0; h < boxes; ++h) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = 4 * c + 2 * i;  // four on: the same of the next 8 columns
        const float x = __shfl_xor_sync(~0u, odd ? d[h][at] : d[h][at + 4], 1);
        const float y = __shfl_xor_sync(~0u, odd ? d[h][at + 1] : d[h][at + 5], 1);
        float4 sums = make_float4(odd ? x : d[h][at], odd ? y : d[h][at + 1],
                                  odd ? d[h][at + 4] : x, odd ? d[h][at + 5] : y);
        const int row = 64 * h + 8 * i;
        if (row < rows && 8 * c < columns) {
          float4* const place = reinterpret_cast<float4*>(first + (row * row_step + 8 * c));
          if constexpr (adds) {
            const float4 was = *place;
            sums = make_float4(was.x + sums.x, was.y + sums.y, was.z + sums.z, was.w + sums.w);
          }
          *place = sums;
        }
      }
    }
  }
}
template <int count>
RG_INLINE void rg_wgmma_begin(float (&d)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// A tile in shared memory with rows (or, where it lies across, columns) of 128 bytes, swizzled.
template <int across>
RG_INLINE unsigned long long rg_tile_of(unsigned address) {
  const unsigned long long leading = across ? 8192 / 16 : 1;
  return static_cast<unsigned long long>((address & 0x3ffff) >> 4) | leading << 16 |
         static_cast<unsigned long long>(1024 / 16) << 32 | 1ull << 62;
}

// Of `count` boxes of 64 lines of 128 bytes, swizzled: zeros in place of the terms before `first` and
// from `end` on, up to `most`. The terms are the lines, where the boxes lie across the sum, or the elements
// of each.
RG_INLINE void rg_zero_lines(unsigned boxes, int count, int first, int end, int most, int thread) {
#pragma unroll 1
  for (int i = thread; i < 8 * most; i += 128) {
    if (i / 8 >= first && i / 8 < end) continue;
#pragma unroll 1
    for (int box = 0; box < count; ++box) {
      asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(boxes + 8192 * box + 16 * i), "r"(0)
                   : "memory");
    }
  }
}
// Bytes 0 to n of a word, n from 0 to 4.
RG_INLINE unsigned rg_first_bytes(int n) {
  return static_cast<unsigned>((1ull << 8 * (n < 0 ? 0 : n > 4 ? 4 : n)) - 1);
}
// first, end: bytes of a line. Of what is zeroed as a whole nothing is waited for.
RG_INLINE void rg_zero_ends(unsigned boxes, int count, int first, int end, int most, int thread) {
#pragma unroll 1
  for (int pack = 0; pack < most / 16; ++pack) {
    const int begin = 16 * pack;
    if (begin >= first && begin + 16 <= end) continue;
    const bool parted = begin + 16 > first && begin < end;
    unsigned kept[4];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      kept[w] = rg_first_bytes(end - begin - 4 * w) & ~rg_first_bytes(first - begin - 4 * w);
    }
#pragma unroll 1
    for (int line = thread; line < 64 * count; line += 128) {
      const unsigned at = boxes + 128 * line + 16 * (pack ^ (line & 7));
      unsigned v[4] = {0, 0, 0, 0};
      if (parted) {
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(at) : "memory");
      }
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(v[0] & kept[0]),
                   "r"(v[1] & kept[1]), "r"(v[2] & kept[2]), "r"(v[3] & kept[3]) : "memory");
    }
  }
}
template <int across, int element_bytes>
RG_INLINE void rg_zero_terms(unsigned boxes, int count, int first, int end, int most, int thread) {
  if constexpr (across) {
    rg_zero_lines(boxes, count, first, end, most, thread);
  } else {
    rg_zero_ends(boxes, count, first * element_bytes, end * element_bytes, most * element_bytes, thread);
  }
}

// Sums of the first `boxes` boxes of 64 rows += the products of `slices` of a step, each of 32 bytes of the
// sum's terms. first: nothing has been added up yet.
template <typename T, int a_across, int b_across, int boxes, int slices, int all, int count>
RG_INLINE void rg_multiply_step(float (&sums)[all][count], unsigned a, unsigned b, bool first) {
  T* const type = nullptr;
#pragma unroll
  for (int j = 0; j < slices; ++j) {
    const unsigned long long tile_b = rg_tile_of<b_across>(b + j * (b_across ? 2048 : 32));
#pragma unroll
    for (int h = 0; h < boxes; ++h) {
      const unsigned long long tile_a =
          rg_tile_of<a_across>(a + j * (a_across ? 2048 : 32) + 8192 * h);
      rg_wgmma<a_across, b_across>(type, sums[h], tile_a, tile_b, !first || j > 0);
    }
  }
}
template <int n>
struct rg_fixed { static constexpr int value = n; };

template <int stages, int tile_m = 128, int tile_n = 128>
struct rg_multiply_shape {
  static constexpr int step_bytes = 128;  // of each line of an operand
  static constexpr int left_bytes = tile_m * step_bytes;
  static constexpr int stage_bytes = left_bytes + tile_n * step_bytes;
  static constexpr int product_bytes = tile_m * tile_n * 2;
  static constexpr int shared_bytes =
      1024 + stages * stage_bytes + 2 * product_bytes + 16 * stages + 16;
};

// Where a block's tile lies. Clusters take theirs, tall x wide of them, in strips of up to 16
// tiles' width.
struct rg_tile_place { int row, col; };
template <int tall, int wide, int tile_m, int tile_n>
RG_INLINE rg_tile_place rg_place_of(int number, int rank, int rows, int cols) {
  const int most = 16 / wide, strip = number / (most * rows), first = strip * most;
  const int width = cols - first < most ? cols - first : most, rest = number - first * rows;
  return {(rest / width * tall + rank % tall) * tile_m,
          ((first + rest % width) * wide + rank / tall) * tile_n};
}

// A tile of the result, and what its sums are made of.
struct rg_product_tile {
  int row, col;     // of the left operand's rows and the right one's columns: where it begins
  int rows_end;     // where its rows end, if the tile does not end before
  int term, terms;  // of the sums: the first that is loaded, and how many
  int skipped;      // of these, which are not the tile's
  int group;        // of operands that are one for each group

  // Boxes of 64 rows that are multiplied, of so many: one, if the others have no rows of the tile.
  RG_INLINE int boxes(int all) const { return rows_end - row <= 64 ? 1 : all; }
};

// The tiles of one product: each cluster takes every so many.
template <int tall, int wide, int tile_m, int tile_n>
struct rg_tiles {
  static constexpr bool of_groups = false;    // the right operand is one for each group
  static constexpr bool sums_end = false;     // before the operands do
  static constexpr bool rows_end = false;     // anywhere in a tile
  static constexpr bool without_terms = false;
  int m, k, rows, cols, number;
  RG_INLINE rg_tiles(int m, int n, int k)
      : m(m), k(k), rows((m + tile_m * tall - 1) / (tile_m * tall)),
        cols((n + tile_n * wide - 1) / (tile_n * wide)),
        number(static_cast<int>(blockIdx.x) / (tall * wide)) {}
  RG_INLINE bool next(int rank, rg_product_tile* tile) {
    if (number >= rows * cols) return false;
    const rg_tile_place at = rg_place_of<tall, wide, tile_m, tile_n>(number, rank, rows, cols);
    *tile = {at.row, at.col, m, 0, k, 0, 0};
    number += static_cast<int>(gridDim.x) / (tall * wide);
    return true;
  }
};

// What sums are multiplied by before they are narrowed.
struct rg_no_scales {
  template <int boxes, int count>
  RG_INLINE void scale(float (&)[boxes][count], const rg_product_tile&, int, int) const {}
};

// A warp loads the operands of a block's tiles into the stages: each when it has been emptied.
template <typename T, int a_across, int b_across, int tall, int wide, int stages, int tile_m, int tile_n,
          typename Tiles>
RG_INLINE void rg_load_tiles(const rg_map* map_a, const rg_map* map_b, unsigned operands, unsigned full,
                             unsigned empty, int rank, int lane, Tiles& tiles) {
  constexpr int step = rg_multiply_shape<stages>::step_bytes / static_cast<int>(sizeof(T));
  typedef rg_multiply_shape<stages, tile_m, tile_n> shape;
  int stage = 0;
  unsigned parity = 1;
  rg_product_tile at;
  while (tiles.next(rank, &at)) {
    const int steps = (at.terms + step - 1) / step;
    for (int s = 0; s < steps; ++s) {
      rg_bar_wait(empty + 8 * stage, parity);
      const unsigned bar = full + 8 * stage;
      const unsigned a = operands + stage * shape::stage_bytes;
      if (lane == 0) {
        const int boxes = Tiles::rows_end ? at.boxes(tile_m / 64) : tile_m / 64;
        rg_bar_expect(bar, shape::stage_bytes - 8192 * (tile_m / 64 - boxes));
        const int depth = at.term + s * step;
        // A box of 64 rows or columns is 8192 bytes. Sharers take turns.
#pragma unroll
        for (int h = 0; h < tile_m / 64; ++h) {
          if (Tiles::rows_end && h >= boxes) break;
          const int row = at.row + 64 * h, to = a + 8192 * h;
          const int sharers = wide == 2 ? (1 + (1 << tall)) << rank % tall : 0;
          if (wide == 2 && h % 2 != rank / tall) continue;
          const int x = a_across ? row : depth, y = a_across ? depth : row;
          rg_map_load<wide>(to, map_a, bar, x, y, sharers);
        }
#pragma unroll
        for (int h = 0; h < tile_n / 64; ++h) {
          const int col = at.col + 64 * h, to = a + shape::left_bytes + 8192 * h;
          const int sharers = tall == 2 ? 3 << rank / tall * 2 : 0;
          if (tall == 2 && h % 2 != rank % tall) continue;
          const int x = b_across ? col : depth, y = b_across ? depth : col;
          if constexpr (Tiles::of_groups) {
            rg_map_load<tall>(to, map_b, bar, x, y, at.group, sharers);
          } else {
            rg_map_load<tall>(to, map_b, bar, x, y, sharers);
          }
        }
      }
      __syncwarp();
      if (++stage == stages) stage = 0, parity ^= 1;
    }
  }
}

// Of operands of T a result of Out. The 128 threads of a warpgroup call, of 16 bits, finish(tile, at,
// thread): the product's pack of 8 elements of row r, from column 8 c of the tile on, is
// tile[(r * tile_n / 8 + (c ^ (r & 7))) * 8]; of fp32, finish(sums, at, warp, lane), with what each has of the
// sums in registers (rg_store_sums).
template <typename T, typename Out, int a_across, int b_across, int tall, int wide, int stages,
          int tile_m, int tile_n, typename Tiles, typename Scales, typename Finish>
RG_INLINE void rg_multiply_tiles(const rg_map* map_a, const rg_map* map_b, void* shared,
                                 Tiles tiles, const Scales& scales, const Finish& finish) {
  constexpr int step = rg_multiply_shape<stages>::step_bytes / static_cast<int>(sizeof(T));
  typedef rg_multiply_shape<stages, tile_m, tile_n> shape;
  char* const memory =
      static_cast<char*>(shared) + ((1024 - (rg_shared_address(shared) & 1023)) & 1023);
  const unsigned operands = rg_shared_address(memory);
  char* const products = memory + stages * shape::stage_bytes;
  const unsigned full = operands + stages * shape::stage_bytes + 2 * shape::product_bytes;
  const unsigned empty = full + 8 * stages, order = empty + 8 * stages;
  const int group = static_cast<int>(threadIdx.x) / 128;
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const int lane = thread % 32, warp = __shfl_sync(~0u, thread / 32, 0);
  const int rank = static_cast<int>(rg_cluster_rank());
  if (threadIdx.x == 0) {
    for (int s = 0; s < stages; ++s) {
      rg_bar_init(full + 8 * s, 1);
      // The warps of a warpgroup of each block that this one loads for.
      rg_bar_init(empty + 8 * s, 4 * (tall + wide - 1));
    }
    rg_bar_init(order, 4);
    rg_bar_init(order + 8, 4);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  rg_cluster_barrier();
  if (group == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (warp == 0) {
      rg_load_tiles<T, a_across, b_across, tall, wide, stages, tile_m, tile_n>(map_a, map_b, operands, full,
                                                                              empty, rank, lane, tiles);
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    char* const mine = products + (group - 1) * shape::product_bytes;
    // Blocks that load for this one: those of its row, then the others of its column.
    const int sharer = lane < wide ? rank % tall + tall * lane
                                   : rank / tall * tall + (lane - wide + rank % tall + 1) % tall;
    int turn = 0, steps = 0;
    rg_product_tile at;
    for (int number = 0; tiles.next(rank, &at); ++number, turn += steps) {
      steps = (at.terms + step - 1) / step;
      if (number % 2 != group - 1) continue;  // the other warpgroup's
      const int tile = number / 2;
      // A warpgroup multiplies when the other has: then all stages before its own have been filled.
      if (group == 2 || tile > 0) rg_bar_wait(order + 8 * (group - 1), (tile + group) & 1);
      float sums[tile_m / 64][tile_n / 2];
      if constexpr (Tiles::without_terms) {
#pragma unroll
        for (int h = 0; h < tile_m / 64; ++h) {
#pragma unroll
          for (int i = 0; i < tile_n / 2; ++i) sums[h][i] = 0;
        }
        if (steps == 0 && lane == 0) rg_bar_arrive(order + 8 * (2 - group));
      }
      int stage = turn % stages;
      unsigned parity = (turn / stages) & 1;
      int before = stage;
      // A step of the sum, whose stage has been filled. So few boxes and slices have anything of the tile's. One
      // step is under way while the next is issued.
      const auto add = [&](int s, auto boxes, auto slices) {
        const unsigned a = operands + stage * shape::stage_bytes, b = a + shape::left_bytes;
#pragma unroll
        for (int h = 0; h < tile_m / 64; ++h) rg_wgmma_begin(sums[h]);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        rg_multiply_step<T, a_across, b_across, decltype(boxes)::value, decltype(slices)::value>(
            sums, a, b, s == 0);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        if (s > 0) {
          asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
          if (lane < tall + wide - 1) rg_bar_arrive_at(empty + 8 * before, sharer);
        }
        if (s + 1 == steps && lane == 0) rg_bar_arrive(order + 8 * (2 - group));
        before = stage;
        if (++stage == stages) stage = 0, parity ^= 1;
      };
      // Before paths meet: where some multiply and others do not, the compiler lets nothing be under way.
      const auto finish_steps = [&] {
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
        for (int h = 0; h < tile_m / 64; ++h) rg_wgmma_begin(sums[h]);
      };
      const auto zero = [&](int s, int slices) {
        const unsigned a = operands + stage * shape::stage_bytes, b = a + shape::left_bytes;
        const int first = s == 0 ? at.skipped : 0, end = at.terms - s * step;
        rg_zero_terms<a_across, sizeof(T)>(a, tile_m / 64, first, end, step / 4 * slices, thread);
        rg_zero_terms<b_across, sizeof(T)>(b, tile_n / 64, first, end, step / 4 * slices, thread);
        __syncwarp();  // the tensor cores' instructions want whole warps, which loops may have parted
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        rg_group_barrier(group);
      };
      const auto add_steps = [&](int end, auto boxes) {
        for (int s = 0; s < end; ++s) {
          rg_bar_wait(full + 8 * stage, parity);
          if constexpr (Tiles::sums_end) {
            if (s == 0 && at.skipped > 0) zero(s, 4);
          }
          add(s, boxes, rg_fixed<4>());
        }
      };
      const rg_fixed<tile_m / 64> all;
      if constexpr (Tiles::sums_end) {
        const int whole = at.terms / step, rest = at.terms - whole * step;
        const int slices = __shfl_sync(~0u, (4 * rest + step - 1) / step, 0);
        add_steps(whole, all);
        if (slices > 0) rg_bar_wait(full + 8 * stage, parity);
        // Slices that end with the tile's terms have nothing of others, but for what is skipped.
        if (rest % (step / 4) != 0 || (whole == 0 && at.skipped > 0)) zero(whole, slices);
        finish_steps();
        if (slices == 1) add(whole, all, rg_fixed<1>()), finish_steps();
        if (slices == 2) add(whole, all, rg_fixed<2>()), finish_steps();
        if (slices == 3) add(whole, all, rg_fixed<3>()), finish_steps();
        if (slices == 4) add(whole, all, rg_fixed<4>()), finish_steps();
      } else if constexpr (Tiles::rows_end && tile_m > 64) {
        if (__shfl_sync(~0u, at.boxes(tile_m / 64), 0) == 1) {
          add_steps(steps, rg_fixed<1>());
          finish_steps();
        } else {
          add_steps(steps, all);
          finish_steps();
        }
      } else {
        add_steps(steps, all);
        finish_steps();
      }
      if (steps > 0 && lane < tall + wide - 1) rg_bar_arrive_at(empty + 8 * before, sharer);
      scales.scale(sums, at, warp, lane);
      if constexpr (sizeof(Out) == 2) {
        // Each matrix of 8 x 8 goes to memory by rows of 16 bytes.
        rg_group_barrier(group);  // the tile before has been read
        const unsigned row = 16 * warp + lane % 16;
        const unsigned to = rg_shared_address(mine) + row * (2 * tile_n);
#pragma unroll
        for (int c = 0; c < tile_n / 8; c += 2) {
          const unsigned place = to + (((c + lane / 16) ^ (row & 7)) << 4);
#pragma unroll
          for (int h = 0; h < tile_m / 64; ++h) {
            rg_store_matrices<Out>(place + h * 64 * 2 * tile_n, sums[h] + 4 * c);
          }
        }
        rg_group_barrier(group);
        finish(reinterpret_cast<const Out*>(mine), at, thread);
      } else {
        finish(sums, at, warp, lane);
      }
    }
  }
  rg_cluster_barrier();
}

// One product of m x n, a sum of k terms.
template <typename T, int a_across, int b_across, int tall, int wide, int stages,
          int tile_m = 128, int tile_n = 128, typename Finish>
RG_INLINE void rg_multiply(const rg_map* map_a, const rg_map* map_b, void* shared, int m, int n,
                           int k, const Finish& finish) {
  rg_multiply_tiles<T, T, a_across, b_across, tall, wide, stages, tile_m, tile_n>(
      map_a, map_b, shared, rg_tiles<tall, wide, tile_m, tile_n>(m, n, k), rg_no_scales(),
      [&](const T* tile, const rg_product_tile& at, int t) { finish(tile, at.row, at.col, t); });
}
)";

}  // namespace

std::string MultiplierPrelude() { return kMultiplier; }

}  // namespace retrograd
