#include "codegen/attention/warp_attention_text.h"

namespace retrograd {

// A tile in shared memory is told by its first element. `sums` [1][n] are 16 rows of this warp.
const char kWarpAttentionFunctions[] = R"(
  typedef rg_tile<sum_t> tile_t;
  const int warp = RG_THREAD / RG_WARP, lane = RG_THREAD % RG_WARP, warp_row = 16 * warp;
  // Threads of a warp see what the others have written.
  const auto meet = [&] {
    if (RG_WARP > 32) {
      RG_BARRIER();
    } else {
      RG_WARP_BARRIER();
    }
  };
  const auto each = [&](auto& sums, auto visit) {
    RG_UNROLL
    for (int n = 0; n < static_cast<int>(sizeof(sums) / sizeof(tile_t)); ++n) {
      RG_UNROLL
      for (int e = 0; e < tile_t::elements; ++e) {
        visit(warp_row + rg_tile_row(lane, e), 16 * n + rg_tile_column(lane, e), sums[0][n].at[e]);
      }
    }
  };
  const auto clear = [&](auto& sums) {
    each(sums, [](int, int, sum_t& sum) { sum = 0; });
  };
  // Rows of this warp by rows of the other tile.
  const auto multiply_rows = [&](auto& sums, int own, int other, auto pitch, auto channels) {
    RG_UNROLL
    for (int k = 0; k < channels; k += 16) {
      rg_multiply_wide_tiles<false, false>(sums, tiles, own + warp_row * pitch + k, pitch, tiles, other + k,
                                           pitch, lane);
    }
  };
  // Numbers of this warp's rows by the rows of the other tile that they belong to.
  const auto add_rows = [&](auto& sums, int numbers, int other, auto pitch) {
    constexpr int columns = static_cast<int>(sizeof(sums) / sizeof(tile_t));
    constexpr int group = columns % 4 == 0 ? 4 : columns % 3 == 0 ? 3 : columns % 5 == 0 ? 5 : columns;
    if constexpr (!kStepsApart) {
      RG_UNROLL
      for (int k = 0; k < kColumns; k += 16) {
        rg_multiply_wide_tiles<false, true>(sums, tiles, numbers + warp_row * kPitchS + k, kPitchS, tiles,
                                            other + k * pitch, pitch, lane);
      }
    } else {
      RG_UNROLL
      for (int first = 0; first < columns; first += group) {
        tile_t of_step[1][group];
        clear(of_step);
        RG_UNROLL
        for (int k = 0; k < kColumns; k += 16) {
          rg_multiply_wide_tiles<false, true>(of_step, tiles, numbers + warp_row * kPitchS + k, kPitchS, tiles,
                                              other + k * pitch + 16 * first, pitch, lane);
        }
        RG_UNROLL
        for (int n = 0; n < group; ++n) {
          RG_UNROLL
          for (int e = 0; e < tile_t::elements; ++e) sums[0][first + n].at[e] += of_step[0][n].at[e];
        }
      }
    }
  };
)";

const char kWarpAttentionQueries[] = R"(
  const int row_tiles = (queries + kRows - 1) / kRows, head_number = RG_BLOCK / row_tiles;
  const int row0 = (row_tiles - 1 - RG_BLOCK % row_tiles) * kRows;
  const int head = head_number % heads, batch = head_number / heads, kv_head = head / kSharing;
  const int end = kCausal && row0 + kRows < keys ? row0 + kRows : keys;
  const int steps = (end + kColumns - 1) / kColumns;
  load_q(kOwnQ, row0, head, batch);
  load_d_o(kOwnV, row0, head, batch);
  const auto fetch = [&](int step) {
    const int stage = kPassing + (kStages > 1 ? step % kStages * kStage : 0);
    load_k(stage, step * kColumns, kv_head, batch);
    load_v(stage + kStageV, step * kColumns, kv_head, batch);
  };
  fetch(0);
  RG_COPIES_SENT();
  RG_COPIES_WAIT(0);
  RG_BARRIER();
  RG_UNROLL_4
  for (int r = 0; r < 16; ++r) {
    const int row = warp_row + r, i = row0 + row;
    sum_t delta = 0;
    if (i < queries) {
      for (int c = lane; c < kDimV; c += RG_WARP) {
        delta += static_cast<sum_t>(rg_load(tiles, kOwnV + row * kPitchV + c)) * load_o(batch, head, i, c);
      }
    }
    for (int n = RG_WARP / 2; n > 0; n /= 2) delta += RG_SHUFFLE_XOR(delta, n);
    if (lane == 0) {
      numbers[row] = delta;
      numbers[kRows + row] = i < queries ? load_lse(batch, head, i) : sum_t(0);
      if (i < queries) rg_store(workspace, static_cast<int64_t>(head_number) * queries + i, delta);
    }
  }
  meet();
  sum_t delta_of[tile_t::elements], lse_of[tile_t::elements];
  RG_UNROLL
  for (int e = 0; e < tile_t::elements; ++e) {
    delta_of[e] = numbers[warp_row + rg_tile_row(lane, e)];
    lse_of[e] = numbers[kRows + warp_row + rg_tile_row(lane, e)];
  }

  tile_t sums[1][kTilesQ];
  clear(sums);
  for (int step = 0; step < steps; ++step) {
    const int stage = kPassing + (kStages > 1 ? step % kStages * kStage : 0);
    if (kStages > 1) {
      if (step + 1 < steps) fetch(step + 1);
      RG_COPIES_SENT();
    }
    tile_t scores[1][kTilesS], gradients[1][kTilesS];
    clear(scores);
    clear(gradients);
    multiply_rows(scores, kOwnQ, stage, kPitchQ, kChannelsQ);
    multiply_rows(gradients, kOwnV, stage + kStageV, kPitchV, kChannelsV);
    RG_UNROLL
    for (int n = 0; n < kTilesS; ++n) {
      RG_UNROLL
      for (int e = 0; e < tile_t::elements; ++e) {
        const int row = warp_row + rg_tile_row(lane, e), column = 16 * n + rg_tile_column(lane, e);
        const int i = row0 + row, j = step * kColumns + column;
        const sum_t weight = weight_of(batch, head, i, j, scores[0][n].at[e], lse_of[e]);
        const sum_t share = share_of(head_number, i, j);
        rg_store(tiles, kNumbers + row * kPitchS + column,
                 weight * (gradients[0][n].at[e] * share - delta_of[e]));
      }
    }
    meet();
    add_rows(sums, kNumbers, stage, kPitchQ);
    if (kStages == 1) {
      RG_BARRIER();
      if (step + 1 < steps) fetch(step + 1);
      RG_COPIES_SENT();
    }
    RG_COPIES_WAIT(0);
    RG_BARRIER();
  }
  each(sums, [&](int row, int c, sum_t sum) {
    if (row0 + row < queries && c < kDimQ) store_dq(batch, head, row0 + row, c, sum * scale);
  });
)";

const char kWarpAttentionKeys[] = R"(
  const int row_tiles = (keys + kRows - 1) / kRows, head_number = RG_BLOCK / row_tiles;
  const int row0 = RG_BLOCK % row_tiles * kRows;
  const int kv_head = head_number % kv_heads, batch = head_number / kv_heads;
  const int column_tiles = (queries + kColumns - 1) / kColumns;
  const int passed = kCausal ? (row0 / kColumns < column_tiles ? row0 / kColumns : column_tiles) : 0;
  const int steps_of_head = column_tiles - passed, steps = steps_of_head * kSharing;
  load_k(kOwnQ, row0, kv_head, batch);
  if (kMakesK) load_v(kOwnV, row0, kv_head, batch);
  sum_t next_lse = 0, next_delta = 0;
  const auto fetch = [&](int step) {
    const int stage = kPassing + (kStages > 1 ? step % kStages * kStage : 0);
    const int head = kv_head * kSharing + step / steps_of_head;
    const int first = (passed + step % steps_of_head) * kColumns, i = first + RG_THREAD;
    load_q(stage, first, head, batch);
    load_d_o(stage + kStageV, first, head, batch);
    if (RG_THREAD < kColumns && i < queries) {
      next_lse = load_lse(batch, head, i);
      if (kMakesK) {
        next_delta = rg_load(workspace, (static_cast<int64_t>(batch) * heads + head) * queries + i);
      }
    }
  };
  const auto settle = [&](int step) {
    const int at = (kStages > 1 ? step % kStages * 2 * kColumns : 0) + RG_THREAD;
    if (RG_THREAD < kColumns) numbers[at] = next_delta, numbers[kColumns + at] = next_lse;
  };
  if (steps > 0) {
    fetch(0);
    settle(0);
  }
  RG_COPIES_SENT();
  RG_COPIES_WAIT(0);
  RG_BARRIER();

  tile_t sums_k[1][kMakesK ? kTilesQ : 1], sums_v[1][kMakesV ? kTilesV : 1];
  clear(sums_k);
  clear(sums_v);
  for (int step = 0; step < steps; ++step) {
    const int stage = kPassing + (kStages > 1 ? step % kStages * kStage : 0);
    const int at = kStages > 1 ? step % kStages * 2 * kColumns : 0;
    const int head = kv_head * kSharing + step / steps_of_head;
    const int first = (passed + step % steps_of_head) * kColumns;
    if (kStages > 1) {
      if (step + 1 < steps) fetch(step + 1);
      RG_COPIES_SENT();
    }
    tile_t scores[1][kTilesS], gradients[1][kTilesS];
    clear(scores);
    clear(gradients);
    multiply_rows(scores, kOwnQ, stage, kPitchQ, kChannelsQ);
    if (kMakesK) multiply_rows(gradients, kOwnV, stage + kStageV, kPitchV, kChannelsV);
    RG_UNROLL
    for (int n = 0; n < kTilesS; ++n) {
      RG_UNROLL
      for (int e = 0; e < tile_t::elements; ++e) {
        const int row = warp_row + rg_tile_row(lane, e), column = 16 * n + rg_tile_column(lane, e);
        const int i = first + column, j = row0 + row, to = row * kPitchS + column;
        const sum_t weight =
            weight_of(batch, head, i, j, scores[0][n].at[e], numbers[at + kColumns + column]);
        const sum_t share = share_of(batch * heads + head, i, j);
        if (kMakesV) rg_store(tiles, kWeights + to, weight * share);
        if (kMakesK) {
          rg_store(tiles, kNumbers + to,
                   weight * (gradients[0][n].at[e] * share - numbers[at + column]));
        }
      }
    }
    meet();
    if (kMakesV) add_rows(sums_v, kWeights, stage + kStageV, kPitchV);
    if (kMakesK) add_rows(sums_k, kNumbers, stage, kPitchQ);
    if (kStages == 1) {
      RG_BARRIER();
      if (step + 1 < steps) fetch(step + 1);
      RG_COPIES_SENT();
    }
    if (step + 1 < steps) settle(step + 1);
    RG_COPIES_WAIT(0);
    RG_BARRIER();
  }
  if (kMakesK) {
    each(sums_k, [&](int row, int c, sum_t sum) {
      if (row0 + row < keys && c < kDimQ) store_dk(batch, kv_head, row0 + row, c, sum * scale);
    });
  }
  if (kMakesV) {
    each(sums_v, [&](int row, int c, sum_t sum) {
      if (row0 + row < keys && c < kDimV) store_dv(batch, kv_head, row0 + row, c, sum);
    });
  }
)";

}  // namespace retrograd
