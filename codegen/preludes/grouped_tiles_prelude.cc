#include "codegen/preludes/grouped_tiles_prelude.h"

namespace retrograd {
namespace {

constexpr char kGroupedTiles[] = R"(
// --- tiles of products of groups ---

// The tiles of the products of all groups: each cluster takes every so many. Either the groups share
// out the rows of a result (m), or, with `sums`, the terms of its sums (k). An end that leaves the
// places, or lies before the one before, is taken for the nearest that does not. The rows behind the
// last group are one more, whose sums have no terms.
//
// Each lane of a warp keeps one group, of 32 at once.
// `unit`: of which number of terms the first that is loaded is a multiple. Where terms are neighbours in
// memory the copy engine begins at multiples of 16 bytes: elsewhere it stops with an illegal instruction.
template <int tall, int wide, int tile_m, int tile_n, int sums, int unit>
struct rg_tiles_of_groups {
  static constexpr bool of_groups = !sums;
  static constexpr bool sums_end = sums;
  static constexpr bool rows_end = !sums;
  static constexpr bool without_terms = true;
  const int* ends;
  int groups, m, k, cols, number;
  int first, begin, end, before, after;  // of the lane's group; tiles before it and with it

  RG_INLINE rg_tiles_of_groups(const int* ends, int groups, int m, int n, int k)
      : ends(ends), groups(groups), m(m), k(k),
        cols((n + tile_n * wide - 1) / (tile_n * wide)),
        number(static_cast<int>(blockIdx.x) / (tall * wide)) {
    look_up(0, 0, 0);
  }
  RG_INLINE static int rows_of(int size) {
    return (size + tile_m * tall - 1) / (tile_m * tall);
  }
  RG_INLINE void look_up(int from, int place, int tile) {
    const int lane = static_cast<int>(threadIdx.x) % 32, group = from + lane, places = sums ? k : m;
    first = from;
    end = group < groups ? max(ends[group], place) : places;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const int other = __shfl_up_sync(~0u, end, d);
      if (lane >= d) end = max(end, other);
    }
    end = min(end, places);
    begin = __shfl_up_sync(~0u, end, 1);
    if (lane == 0) begin = place;
    if constexpr (!sums) {
      const int own = group <= groups ? rows_of(end - begin) * cols : 0;
      after = own;
#pragma unroll
      for (int d = 1; d < 32; d *= 2) {
        const int other = __shfl_up_sync(~0u, after, d);
        if (lane >= d) after += other;
      }
      after += tile;
      before = after - own;
    }
  }
  // Looks up the groups with the one that has the tile: the lane that keeps it; -1: none has it.
  RG_INLINE int lane_of(int tile) {
    if constexpr (sums) {
      const int group = tile / (rows_of(m) * cols);
      if (group >= groups) return -1;
      // Shuffled, though all lanes have it: NVRTC 13.0 does not end on a loop whose rounds it counts.
      while (group >= __shfl_sync(~0u, first, 0) + 32) {
        look_up(first + 32, __shfl_sync(~0u, end, 31), 0);
      }
      return group - first;
    } else {
      for (;;) {
        const int last = __shfl_sync(~0u, after, 31);
        if (tile < last) return __ffs(__ballot_sync(~0u, tile < after)) - 1;
        if (first + 32 > groups) return -1;
        look_up(first + 32, __shfl_sync(~0u, end, 31), last);
      }
    }
  }
  RG_INLINE bool next(int rank, rg_product_tile* tile) {
    const int lane = lane_of(number), group = first + lane;
    if (lane < 0) return false;
    const int before_group = sums ? group * (rows_of(m) * cols) : __shfl_sync(~0u, before, lane);
    const int from = __shfl_sync(~0u, begin, lane), to = __shfl_sync(~0u, end, lane);
    const rg_tile_place at = rg_place_of<tall, wide, tile_m, tile_n>(
        number - before_group, rank, rows_of(sums ? m : to - from), cols);
    number += static_cast<int>(gridDim.x) / (tall * wide);
    if (sums) {
      const int first = from / unit * unit;
      *tile = {at.row, at.col, m, first, to > from ? to - first : 0, from - first, group};
    } else {
      *tile = {from + at.row, at.col, to, 0, group < groups ? k : 0, 0, group};
    }
    return true;
  }
};

// Scales of a result's rows and columns, of the columns one list for each group, with `sums` of the rows
// too. Rows behind the last group have none: their sums are zeros. Which factor comes first decides how the
// product rounds.
template <int sums, int columns_first>
struct rg_scales_of_groups {
  const float *rows, *columns;
  int64_t row_group, row_step, column_group, column_step;  // from scale to scale, in elements
  int groups, n;

  // Each thread has, of a box of 64 rows, two rows and of each 8 columns two neighbours.
  template <int boxes, int count>
  RG_INLINE void scale(float (&d)[boxes][count], const rg_product_tile& at, int warp, int lane) const {
    if (at.group >= groups) return;
    const float* const of_rows = rows + (sums ? at.group * row_group : 0);
    const float* const of_columns = columns + at.group * column_group;
    float row_scale[boxes][2];
#pragma unroll
    for (int h = 0; h < boxes; ++h) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = at.row + 64 * h + 16 * warp + lane / 4 + 8 * i;
        row_scale[h][i] = row < at.rows_end ? of_rows[row * row_step] : 0.0f;
      }
    }
#pragma unroll
    for (int c = 0; c < count / 4; ++c) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int column = at.col + 8 * c + lane % 4 * 2 + j;
        const float column_scale = column < n ? of_columns[column * column_step] : 0.0f;
#pragma unroll
        for (int h = 0; h < boxes; ++h) {
          float& upper = d[h][4 * c + j];
          float& lower = d[h][4 * c + 2 + j];
          upper = columns_first ? upper * column_scale * row_scale[h][0] : upper * row_scale[h][0] * column_scale;
          lower = columns_first ? lower * column_scale * row_scale[h][1] : lower * row_scale[h][1] * column_scale;
        }
      }
    }
  }
};
)";

}  // namespace

std::string GroupedTilesPrelude() { return kGroupedTiles; }

}  // namespace retrograd
