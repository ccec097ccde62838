#include "codegen/attention/warp_attention_text.h"

namespace retrograd {

const char kWarpAttentionThreads[] = R"(
  typedef rg_tile<sum_t> tile_t;
  const int warp = RG_THREAD / RG_WARP, lane = RG_THREAD % RG_WARP;
  const int warp_row = warp % (kRows / 16) * 16, group = warp / (kRows / 16);
  // The threads that share rows see what the others have written. A warp's barrier is of 32 threads.
  const auto meet = [&] {
    if (kGroups > 1 || RG_WARP > 32) {
      RG_BARRIER();
    } else {
      RG_WARP_BARRIER();
    }
  };
)";

// Of a step: the next one's rows and the bias are sent for, and both products of the scores are
// made.
const char kWarpAttentionScores[] = R"(
    if (kStages > 1) {
      if (step + 1 < steps) fetch(step + 1);
      RG_COPIES_SENT();
    }
    [[maybe_unused]] sum_t added[kTilesS][tile_t::elements] = {};
    if (kBiased) {
      RG_UNROLL
      for (int n = 0; n < kTilesS; ++n) {
        RG_UNROLL
        for (int e = 0; e < tile_t::elements; ++e) {
          const int own = row0 + warp_row + rg_tile_row(lane, e);
          const int other = first + group * (16 * kTilesS) + 16 * n + rg_tile_column(lane, e);
          const int i = kOwnQueries ? own : other, j = kOwnQueries ? other : own;
          added[n][e] = load_bias(batch, head, i < queries ? i : queries - 1, j < keys ? j : keys - 1);
        }
      }
    }
    tile_t scores[1][kTilesS], gradients[1][kTilesS];
    rg_clear_tiles(scores);
    rg_clear_tiles(gradients);
    rg_multiply_rows<kChannelsQ>(scores, tiles, kOwnQ + warp_row * kPitchQ,
                                 stage + group * (16 * kTilesS) * kPitchQ, kPitchQ, lane);
    rg_multiply_rows<kChannelsV>(gradients, tiles, kOwnV + warp_row * kPitchV,
                                 stage + kStageV + group * (16 * kTilesS) * kPitchV, kPitchV, lane);
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
    if (lane == 0 && group == 0) {
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
  rg_clear_tiles(sums);
  for (int step = 0; step < steps; ++step) {
    const int stage = kPassing + (kStages > 1 ? step % kStages * kStage : 0);
    const int first = step * kColumns;
)";

// Of a step: the gradients of the scores, for all threads that share its rows.
const char kWarpAttentionScoreGradients[] = R"(
    RG_UNROLL
    for (int n = 0; n < kTilesS; ++n) {
      RG_UNROLL
      for (int e = 0; e < tile_t::elements; ++e) {
        const int row = warp_row + rg_tile_row(lane, e);
        const int column = group * (16 * kTilesS) + 16 * n + rg_tile_column(lane, e);
        const int i = row0 + row, j = first + column;
        const sum_t weight = weight_of(i, j, scores[0][n].at[e], added[n][e], lse_of[e]);
        const sum_t share = share_of(head_number, i, j);
        rg_store(tiles, kNumbers + row * kPitchS + column,
                 weight == 0 ? sum_t(0) : weight * (gradients[0][n].at[e] * share - delta_of[e]));
      }
    }
    meet();
)";

// Of a step, where they are a result: neighbours along a row by neighbouring threads.
const char kWarpAttentionStoredScores[] = R"(
    constexpr int kOwnColumns = 16 * kTilesS;
    for (int n = lane; n < 16 * kOwnColumns; n += RG_WARP) {
      const int row = warp_row + n / kOwnColumns, column = group * kOwnColumns + n % kOwnColumns;
      const int i = row0 + row, j = first + column;
      if (i < queries && j < keys) {
        store_d_s(batch, head, i, j, static_cast<sum_t>(rg_load(tiles, kNumbers + row * kPitchS + column)));
      }
    }
)";

// Keys behind the last step, which no query of the block sees, have gradients of zero.
const char kWarpAttentionUnseenScores[] = R"(
  for (int row = row0; row < row0 + kRows && row < queries; ++row) {
    for (int j = steps * kColumns + RG_THREAD; j < keys; j += kThreads) {
      store_d_s(batch, head, row, j, sum_t(0));
    }
  }
)";

const char kWarpAttentionQueriesEnd[] = R"(
    rg_add_rows<kColumns, kStepsApart != 0>(sums, tiles, kNumbers + warp_row * kPitchS, kPitchS,
                                            stage + group * (16 * kTilesQ), kPitchQ, lane);
    if (kStages == 1) {
      RG_BARRIER();
      if (step + 1 < steps) fetch(step + 1);
      RG_COPIES_SENT();
    }
    RG_COPIES_WAIT(0);
    RG_BARRIER();
  }
  RG_UNROLL
  for (int n = 0; n < kTilesQ; ++n) {
    RG_UNROLL
    for (int e = 0; e < tile_t::elements; ++e) {
      const int row = row0 + warp_row + rg_tile_row(lane, e);
      const int c = group * (16 * kTilesQ) + 16 * n + rg_tile_column(lane, e);
      if (row < queries && c < kDimQ) store_dq(batch, head, row, c, sums[0][n].at[e] * scale);
    }
  }
)";

const char kWarpAttentionKeys[] = R"(
  const int row_tiles = (keys + kRows - 1) / kRows, head_number = RG_BLOCK / row_tiles;
  const int row0 = RG_BLOCK % row_tiles * kRows;
  const int kv_head = head_number % kv_heads, batch = head_number / kv_heads;
  const int column_tiles = (queries + kColumns - 1) / kColumns;
  const int passed = kCausal ? (row0 / kColumns < column_tiles ? row0 / kColumns : column_tiles) : 0;
  const int steps_of_head = column_tiles - passed, steps = steps_of_head * kSharing;
  load_k(kOwnQ, row0, kv_head, batch);
  load_v(kOwnV, row0, kv_head, batch);
  sum_t next_lse = 0, next_delta = 0;
  const auto fetch = [&](int step) {
    const int stage = kPassing + (kStages > 1 ? step % kStages * kStage : 0);
    const int head = kv_head * kSharing + step / steps_of_head;
    const int first = (passed + step % steps_of_head) * kColumns, i = first + RG_THREAD;
    load_q(stage, first, head, batch);
    load_d_o(stage + kStageV, first, head, batch);
    if (RG_THREAD < kColumns) {
      const bool there = i < queries;
      next_lse = there ? load_lse(batch, head, i) : sum_t(0);
      next_delta =
          there ? rg_load(workspace, (static_cast<int64_t>(batch) * heads + head) * queries + i) : sum_t(0);
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

  tile_t sums_k[1][kTilesQ], sums_v[1][kTilesV];
  rg_clear_tiles(sums_k);
  rg_clear_tiles(sums_v);
  for (int step = 0; step < steps; ++step) {
    const int stage = kPassing + (kStages > 1 ? step % kStages * kStage : 0);
    const int at = kStages > 1 ? step % kStages * 2 * kColumns : 0;
    const int head = kv_head * kSharing + step / steps_of_head;
    const int first = (passed + step % steps_of_head) * kColumns;
)";

const char kWarpAttentionKeysEnd[] = R"(
    RG_UNROLL
    for (int n = 0; n < kTilesS; ++n) {
      RG_UNROLL
      for (int e = 0; e < tile_t::elements; ++e) {
        const int row = warp_row + rg_tile_row(lane, e);
        const int column = group * (16 * kTilesS) + 16 * n + rg_tile_column(lane, e);
        const int i = first + column, j = row0 + row, to = row * kPitchS + column;
        const sum_t weight =
            weight_of(i, j, scores[0][n].at[e], added[n][e], numbers[at + kColumns + column]);
        const sum_t share = share_of(batch * heads + head, i, j);
        rg_store(tiles, kWeights + to, weight * share);
        rg_store(tiles, kNumbers + to,
                 weight == 0 ? sum_t(0) : weight * (gradients[0][n].at[e] * share - numbers[at + column]));
      }
    }
    meet();
    rg_add_rows<kColumns, kStepsApart != 0>(sums_v, tiles, kWeights + warp_row * kPitchS, kPitchS,
                                            stage + kStageV + group * (16 * kTilesV), kPitchV, lane);
    rg_add_rows<kColumns, kStepsApart != 0>(sums_k, tiles, kNumbers + warp_row * kPitchS, kPitchS,
                                            stage + group * (16 * kTilesQ), kPitchQ, lane);
    if (kStages == 1) {
      RG_BARRIER();
      if (step + 1 < steps) fetch(step + 1);
      RG_COPIES_SENT();
    }
    if (step + 1 < steps) settle(step + 1);
    RG_COPIES_WAIT(0);
    RG_BARRIER();
  }
  RG_UNROLL
  for (int n = 0; n < kTilesQ; ++n) {
    RG_UNROLL
    for (int e = 0; e < tile_t::elements; ++e) {
      const int row = row0 + warp_row + rg_tile_row(lane, e);
      const int c = group * (16 * kTilesQ) + 16 * n + rg_tile_column(lane, e);
      if (row < keys && c < kDimQ) store_dk(batch, kv_head, row, c, sums_k[0][n].at[e] * scale);
    }
  }
  RG_UNROLL
  for (int n = 0; n < kTilesV; ++n) {
    RG_UNROLL
    for (int e = 0; e < tile_t::elements; ++e) {
      const int row = row0 + warp_row + rg_tile_row(lane, e);
      const int c = group * (16 * kTilesV) + 16 * n + rg_tile_column(lane, e);
      if (row < keys && c < kDimV) store_dv(batch, kv_head, row, c, sums_v[0][n].at[e]);
    }
  }
)";

}  // namespace retrograd
