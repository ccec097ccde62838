#include "codegen/gemm/tiled_matmul_text.h"

namespace retrograd {

const char kTiledPlaces[] = R"(
  const int column0 = RG_BLOCK % kColumnTiles * kColumns;
  const int row0 = RG_BLOCK / kColumnTiles % kRowTiles * kRows;
  const int rows = kM - row0, columns = kN - column0;
  const int warp = RG_THREAD / RG_WARP, lane = RG_THREAD % RG_WARP;
  const int warp_row = warp / kWarpColumns * (kTileRows * 16);
  const int warp_column = warp % kWarpColumns * (kTileColumns * 16);
)";

// What begins at aligned addresses goes to shared memory on its own, what does not through
// registers: it is shifted there.
const char kTiledOperands[] = R"(
  rg_part<element_t> parts_a[kFetchedA], parts_b[kFetchedB];
  const auto each_a = [&](int step, auto part) {
    const int left = kTerms - step * kDepth;
    const int64_t first = a0 + row0 * kARow + static_cast<int64_t>(step) * kDepth * kAColumn;
    RG_UNROLL
    for (int i = 0; i < kCopiesA; ++i) {
      const int at = RG_THREAD + i * kThreads, line = at / kPacksA, pack = at % kPacksA * kV;
      if (kLinesA * kPacksA % kThreads != 0 && line >= kLinesA) continue;
      const int lines = kAcrossA ? left : rows, run = (kAcrossA ? rows : left) - pack;
      part(i, line * kPitchA + pack, first + line * kLineA + pack, line < lines ? run : 0);
    }
  };
  const auto each_b = [&](int step, auto part) {
    const int left = kTerms - step * kDepth;
    const int64_t first = b0 + column0 * kBColumn + static_cast<int64_t>(step) * kDepth * kBRow;
    RG_UNROLL
    for (int i = 0; i < kCopiesB; ++i) {
      const int at = RG_THREAD + i * kThreads, line = at / kPacksB, pack = at % kPacksB * kV;
      if (kLinesB * kPacksB % kThreads != 0 && line >= kLinesB) continue;
      const int lines = kAcrossB ? left : columns, run = (kAcrossB ? columns : left) - pack;
      part(i, kStageA + line * kPitchB + pack, first + line * kLineB + pack, line < lines ? run : 0);
    }
  };
  const auto fetch = [&](int step, int stage) {
    each_a(step, [&](int i, int to, int64_t from, int count) {
      if (kShiftedA) rg_fetch_part(a, from, count, &parts_a[kShiftedA ? i : 0]);
      else rg_copy_part(tiles, stage * kStage + to, a, from, count);
    });
    each_b(step, [&](int i, int to, int64_t from, int count) {
      if (kShiftedB) rg_fetch_part(b, from, count, &parts_b[kShiftedB ? i : 0]);
      else rg_copy_part(tiles, stage * kStage + to, b, from, count);
    });
    RG_COPIES_SENT();
  };
  const auto settle = [&](int stage) {
    if (kShiftedA) {
      each_a(0, [&](int i, int to, int64_t, int) {
        rg_settle_part(tiles, stage * kStage + to, parts_a[kShiftedA ? i : 0]);
      });
    }
    if (kShiftedB) {
      each_b(0, [&](int i, int to, int64_t, int) {
        rg_settle_part(tiles, stage * kStage + to, parts_b[kShiftedB ? i : 0]);
      });
    }
    RG_COPIES_WAIT(0);
  };
)";

const char kTiledProduct[] = R"(
  rg_tile<sum_t> sums[kTileRows][kTileColumns];
  RG_UNROLL
  for (int m = 0; m < kTileRows; ++m) {
    RG_UNROLL
    for (int n = 0; n < kTileColumns; ++n) {
      RG_UNROLL
      for (int i = 0; i < rg_tile<sum_t>::elements; ++i) sums[m][n].at[i] = 0;
    }
  }
  fetch(0, 0);
  settle(0);
  RG_BARRIER();
  for (int step = 0; step < kSteps; ++step) {
    const int stage = kStages == 1 ? 0 : step % kStages;
    if (kSteps > 1 && step + 1 < kSteps) fetch(step + 1, kStages - 1 - stage);
    RG_UNROLL
    for (int k = 0; k < kDepth; k += 16) {
      rg_multiply_tiles<kAcrossA, kAcrossB>(
          sums, tiles, stage * kStage + (kAcrossA ? k * kPitchA + warp_row : warp_row * kPitchA + k), kPitchA,
          tiles, stage * kStage + kStageA + (kAcrossB ? k * kPitchB + warp_column : warp_column * kPitchB + k),
          kPitchB, lane);
    }
    if (kSteps > 1 && step + 1 < kSteps) settle(kStages - 1 - stage);
    RG_BARRIER();
  }
  RG_UNROLL
  for (int m = 0; m < kTileRows; ++m) {
    RG_UNROLL
    for (int n = 0; n < kTileColumns; ++n) {
      RG_UNROLL
      for (int i = 0; i < rg_tile<sum_t>::elements; ++i) {
        const int row = warp_row + 16 * m + rg_tile_row(lane, i);
        const int column = warp_column + 16 * n + rg_tile_column(lane, i);
        if (kFlatD && (row >= rows || column >= columns)) continue;
        rg_store(image, image_at(kDownD ? column : row, kDownD ? row : column), sums[m][n].at[i]);
      }
    }
  }
  RG_BARRIER();
)";

// Lines of the image begin at packs of 16 bytes of shared memory as far from them as the lines of
// the result do in memory. A flat image is one line.
const char kTiledImage[] = R"(
  const int64_t line0 = d0 + row0 * kDRow + column0 * kDColumn;
  const int phase0 = kOddD ? static_cast<int>(line0 & (kVD - 1)) : 0;
  constexpr int phase_step = kOddD && !kFlatD ? static_cast<int>(kLineD & (kVD - 1)) : 0;
  const auto phase_of = [&](int line) { return kOddD ? (phase0 + line * phase_step) & (kVD - 1) : 0; };
  const auto image_at = [&](int line, int at) {
    return kFlatD ? phase0 + line * kLengthD + at : line * kPitchD + phase_of(line) + at;
  };
)";

const char kTiledStore[] = R"(
  const int rows_here = rows < kRows ? rows : kRows, columns_here = columns < kColumns ? columns : kColumns;
  const int lines = kFlatD ? 1 : kDownD ? columns_here : rows_here;
  const int length = kFlatD ? rows_here * columns_here : kDownD ? rows_here : columns_here;
  const auto store = [&](int line, int at) {
    const int64_t to = line0 + line * kLineD + at;
    const sum_t sum = rg_load(image, image_at(line, at));
    rg_store(d, to, kAdds ? sum_t(rg_load(d, to)) + sum : sum);
  };
)";

const char kTiledPack[] = R"(
  const auto store_pack = [&](int line, int first) {
    rg_store_from<kVD, kVD>(d, line0 + line * kLineD + first, image, image_at(line, first));
  };
)";

const char kTiledAddedPack[] = R"(
  const auto store_pack = [&](int line, int first) {
    const int64_t to = line0 + line * kLineD + first;
    sum_t sums[kVD];
    rg_load_vec<kVD>(d, to, sums);
    RG_UNROLL
    for (int v = 0; v < kVD; ++v) sums[v] += sum_t(rg_load(image, image_at(line, first + v)));
    rg_store_vec<kVD>(d, to, sums);
  };
)";

const char kTiledElement[] = R"(
  const auto store_pack = [&](int line, int at) { store(line, at); };
)";

const char kTiledStores[] = R"(
  for (int i = RG_THREAD; i < kLinesD * kPacksD; i += kThreads) {
    const int line = i / kPacksD;
    if (line >= lines) break;
    const int first = i % kPacksD * kVD - phase_of(line);
    if (first >= 0 && first + kVD <= length) {
      store_pack(line, first);
      continue;
    }
    RG_UNROLL
    for (int v = 0; v < kVD; ++v) {
      if (first + v >= 0 && first + v < length) store(line, first + v);
    }
  }
)";

}  // namespace retrograd
