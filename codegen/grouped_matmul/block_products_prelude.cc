#include "codegen/grouped_matmul/block_products_prelude.h"

namespace retrograd {
namespace {

constexpr char kBlockProducts[] = R"(
// --- products of blocks of terms that have scales of their own ---

RG_INLINE void rg_copy_scale(unsigned to, const float* from, bool there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(there ? 4 : 0)
               : "memory");
}
// When what the thread has copied so far is there.
RG_INLINE void rg_bar_arrive_behind_copies(unsigned bar) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(bar) : "memory");
}

// Scales of blocks of so many terms, of the left operand by rows and of the right one by columns; so many
// rows or columns have one.
template <int terms, int row_lines, int column_lines>
struct rg_scales_of_blocks {
  const float *rows, *columns;
  int64_t row_step, row_block, column_group, column_step, column_block;  // from scale to scale, in elements
  int n;

  // Whether all columns of a tile have one scale: tiles begin at multiples of their size.
  template <int tile_n>
  static constexpr bool one_of_columns = column_lines % tile_n == 0;

  // Those of a tile's rows, then those of its columns, of the block of a term, on their way into shared
  // memory. What has none is given zero.
  template <int tile_m, int tile_n>
  RG_INLINE void fetch(unsigned to, const rg_product_tile& at, int term, int lane) const {
    const int block = term / terms;
    const float* const of_rows = rows + block * row_block;
    const float* const of_columns = columns + (at.group * column_group + block * column_block);
#pragma unroll
    for (int i = 0; i < tile_m / 32; ++i) {
      const int line = lane + 32 * i, row = at.row + line;
      const bool there = row < at.rows_end;
      rg_copy_scale(to + 4 * line, there ? of_rows + row / row_lines * row_step : rows, there);
    }
#pragma unroll
    for (int i = 0; i < (one_of_columns<tile_n> ? 1 : tile_n / 32); ++i) {
      const int line = lane + 32 * i, column = at.col + line;
      const bool there = column < n;
      rg_copy_scale(to + 4 * (tile_m + line),
                    there ? of_columns + column / column_lines * column_step : columns, there);
    }
  }

  // totals += sums, scaled by those of the box's rows and of the tile's columns. Each thread has two rows, and
  // of each 8 columns two neighbours.
  template <int tile_n>
  RG_INLINE static void add(float (&totals)[tile_n / 2], const float (&sums)[tile_n / 2],
                            const float* of_rows, const float* of_columns, int warp, int lane) {
    const int row = 16 * warp + lane / 4;
    float upper = of_rows[row], lower = of_rows[row + 8];
    if constexpr (one_of_columns<tile_n>) {
      upper *= of_columns[0];
      lower *= of_columns[0];
#pragma unroll
      for (int i = 0; i < tile_n / 2; ++i) totals[i] += sums[i] * (i / 2 % 2 == 0 ? upper : lower);
    } else {
#pragma unroll
      for (int c = 0; c < tile_n / 8; ++c) {
        const float2 two = reinterpret_cast<const float2*>(of_columns)[4 * c + lane % 4];
        totals[4 * c] += sums[4 * c] * (upper * two.x);
        totals[4 * c + 1] += sums[4 * c + 1] * (upper * two.y);
        totals[4 * c + 2] += sums[4 * c + 2] * (lower * two.x);
        totals[4 * c + 3] += sums[4 * c + 3] * (lower * two.y);
      }
    }
  }
};

// As rg_multiply_tiles, but of the sums of each step, which are scaled and added up in other registers.
// Both warpgroups that multiply make one tile, each 64 of its 128 rows: while one scales, the other multiplies.
// finish is called for these rows, as if they were a tile. A warp beside the one that loads fetches the scales.
template <typename T, typename Out, int a_across, int b_across, int tall, int wide, int stages, int tile_n,
          typename Tiles, typename Scales, typename Finish>
RG_INLINE void rg_multiply_blocks(const rg_map* map_a, const rg_map* map_b, void* shared, Tiles tiles,
                                  const Scales& scales, const Finish& finish) {
  constexpr int tile_m = 128;
  constexpr int step = rg_multiply_shape<stages>::step_bytes / static_cast<int>(sizeof(T));
  typedef rg_multiply_shape<stages, tile_m, tile_n> shape;
  // The scales have the place of the other product: there is one.
  static_assert(4 * stages * (tile_m + tile_n) <= shape::product_bytes);
  char* const memory =
      static_cast<char*>(shared) + ((1024 - (rg_shared_address(shared) & 1023)) & 1023);
  const unsigned operands = rg_shared_address(memory);
  char* const products = memory + stages * shape::stage_bytes;
  float* const scaling = reinterpret_cast<float*>(products + shape::product_bytes);
  const unsigned full = operands + stages * shape::stage_bytes + 2 * shape::product_bytes;
  const unsigned empty = full + 8 * stages;
  const int group = static_cast<int>(threadIdx.x) / 128;
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const int lane = thread % 32, warp = __shfl_sync(~0u, thread / 32, 0);
  const int rank = static_cast<int>(rg_cluster_rank());
  if (threadIdx.x == 0) {
    for (int s = 0; s < stages; ++s) {
      rg_bar_init(full + 8 * s, 1 + 32);
      // The warps of both warpgroups of each block that this one loads for.
      rg_bar_init(empty + 8 * s, 8 * (tall + wide - 1));
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  rg_cluster_barrier();
  if (group == 0) {
    // Of 504 registers, 168 of each warpgroup's threads at launch: with more the others wait forever.
    asm volatile("setmaxnreg.dec.sync.aligned.u32 88;");
    if (warp == 0) {
      rg_load_tiles<T, a_across, b_across, tall, wide, stages, tile_m, tile_n>(map_a, map_b, operands, full,
                                                                              empty, rank, lane, tiles);
    } else if (warp == 1) {
      int stage = 0;
      unsigned parity = 1;
      rg_product_tile at;
      while (tiles.next(rank, &at)) {
        for (int s = 0; s * step < at.terms; ++s) {
          rg_bar_wait(empty + 8 * stage, parity);
          scales.template fetch<tile_m, tile_n>(rg_shared_address(scaling + stage * (tile_m + tile_n)), at,
                                                at.term + s * step, lane);
          rg_bar_arrive_behind_copies(full + 8 * stage);
          if (++stage == stages) stage = 0, parity ^= 1;
        }
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 208;");
    const int half = group - 1;
    char* const mine = products + half * (shape::product_bytes / 2);
    // Blocks that load for this one: those of its row, then the others of its column.
    const int sharer = lane < wide ? rank % tall + tall * lane
                                   : rank / tall * tall + (lane - wide + rank % tall + 1) % tall;
    int stage = 0;
    unsigned parity = 0;
    rg_product_tile at;
    while (tiles.next(rank, &at)) {
      const bool has_rows = __shfl_sync(~0u, at.boxes(2), 0) > half;
      float totals[1][tile_n / 2], sums[1][tile_n / 2];
#pragma unroll
      for (int i = 0; i < tile_n / 2; ++i) totals[0][i] = 0;
      for (int s = 0; s * step < at.terms; ++s) {
        rg_bar_wait(full + 8 * stage, parity);
        const unsigned left = operands + stage * shape::stage_bytes + 8192 * half;
        const unsigned right = operands + stage * shape::stage_bytes + shape::left_bytes;
        if constexpr (Tiles::sums_end) {
          const int first = s == 0 ? at.skipped : 0, end = at.terms - s * step;
          if (first > 0 || end < step) {
            // Each the rows that it multiplies, and half of the columns.
            rg_zero_terms<a_across, sizeof(T)>(left, 1, first, end, step, thread);
            for (int h = half; h < tile_n / 64; h += 2) {
              rg_zero_terms<b_across, sizeof(T)>(right + 8192 * h, 1, first, end, step, thread);
            }
            __syncwarp();
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            asm volatile("bar.sync 3, 256;" ::: "memory");
          }
        }
        if (has_rows) {
          rg_wgmma_begin(sums[0]);
          asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
          rg_multiply_step<T, a_across, b_across, 1, 4>(sums, left, right, true);
          asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
          asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
          rg_wgmma_begin(sums[0]);
          const float* const of_stage = scaling + stage * (tile_m + tile_n);
          Scales::template add<tile_n>(totals[0], sums[0], of_stage + 64 * half, of_stage + tile_m, warp, lane);
        }
        __syncwarp();
        if (lane < tall + wide - 1) rg_bar_arrive_at(empty + 8 * stage, sharer);
        if (++stage == stages) stage = 0, parity ^= 1;
      }
      if (!has_rows) continue;
      rg_product_tile box = at;
      box.row += 64 * half;
      if constexpr (sizeof(Out) == 2) {
        rg_group_barrier(group);  // the product before has been read
        const unsigned row = 16 * warp + lane % 16;
        const unsigned to = rg_shared_address(mine) + row * (2 * tile_n);
#pragma unroll
        for (int c = 0; c < tile_n / 8; c += 2) {
          rg_store_matrices<Out>(to + (((c + lane / 16) ^ (row & 7)) << 4), totals[0] + 4 * c);
        }
        rg_group_barrier(group);
        finish(reinterpret_cast<const Out*>(mine), box, thread);
      } else {
        finish(totals, box, warp, lane);
      }
    }
  }
  rg_cluster_barrier();
}
)";

}  // namespace

std::string BlockProductsPrelude() { return kBlockProducts; }

}  // namespace retrograd
