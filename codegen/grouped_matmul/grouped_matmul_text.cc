#include "codegen/grouped_matmul/grouped_matmul_text.h"

namespace retrograd {

// All threads go through the groups' ends, several at once, up to the block's own group. An end
// that leaves the places, or lies before the one before, is taken for the nearest that does not
// (graph/ir/group_ends.h). The places behind the last group are one more, whose sums have no terms.
const char kGroupOfBlock[] = R"(
  const int column0 = RG_BLOCK % kColumnTiles * kColumns;
  const int wanted = RG_BLOCK / kColumnTiles / kRowTiles;  // of sums in groups
  int row_tile = kSumsInGroups ? RG_BLOCK / kColumnTiles % kRowTiles : RG_BLOCK / kColumnTiles;
  int group = 0, begin_place = 0, end_place = 0;
  bool found = false;
  for (int first = 0; first <= kGroups && !found; first += kEndsAtOnce) {
    int next[kEndsAtOnce];
    RG_UNROLL
    for (int n = 0; n < kEndsAtOnce; ++n) {
      next[n] = first + n < kGroups ? rg_load(ends, kEndsFirst + first + n) : kPlaces;
    }
    RG_UNROLL
    for (int n = 0; n < kEndsAtOnce; ++n) {
      if (found) continue;
      group = first + n;
      begin_place = end_place;
      end_place = next[n] < begin_place ? begin_place : next[n];
      end_place = end_place < kPlaces ? end_place : kPlaces;
      const int tiles = (end_place - begin_place + kRows - 1) / kRows;
      found = kSumsInGroups ? group == wanted : row_tile < tiles;
      if (!found && !kSumsInGroups) row_tile -= tiles;
    }
  }
  if (!found) return;
  const int row0 = row_tile * kRows + (kSumsInGroups ? 0 : begin_place);
  const int rows = (kSumsInGroups ? kM : end_place) - row0, columns = kN - column0;
  const int term0 = kSumsInGroups ? begin_place / kTermsBegin * kTermsBegin : 0;
  int skipped = kSumsInGroups ? begin_place - term0 : 0;
  int left = kSumsInGroups ? (end_place > begin_place ? end_place - term0 : 0) : group < kGroups ? kTerms : 0;
)";

// What a thread copies of each step lies at the same places of it: the step's own place moves. As a
// number: with pointers that the lambdas move NVRTC does not end.
const char kGroupedOperands[] = R"(
  const int warp = RG_THREAD / RG_WARP, lane = RG_THREAD % RG_WARP;
  constexpr int slice = 0;
  const int warp_row = warp / kWarpColumns * (kTileRows * 16);
  const int warp_column = warp % kWarpColumns * (kTileColumns * 16);
  constexpr int begin = 0;
  const int end = (left + kDepth - 1) / kDepth;
  const auto line_a = [&](int i) { return (RG_THREAD + i * kThreads) / kPacksA; };
  const auto pack_a = [&](int i) { return (RG_THREAD + i * kThreads) % kPacksA * kVA; };
  const auto line_b = [&](int i) { return (RG_THREAD + i * kThreads) / kPacksB; };
  const auto pack_b = [&](int i) { return (RG_THREAD + i * kThreads) % kPacksB * kVB; };
  int64_t a_at = kAFirst + row0 * kARow + term0 * kAColumn;
  int64_t b_at = kBFirst + group * kBGroup + term0 * kBRow + column0 * kBColumn;
  const auto copy = [&](int to, int piece) {
    RG_UNROLL_8
    for (int i = kCopiesA * piece / kPieces; i < kCopiesA * (piece + 1) / kPieces; ++i) {
      if (kLinesA * kPacksA % kThreads != 0 && line_a(i) >= kLinesA) continue;
      const int row = kAcrossA ? pack_a(i) : line_a(i), term = kAcrossA ? line_a(i) : pack_a(i);
      rg_copy_or_zero<kVA>(tiles, to + line_a(i) * kPitchA + pack_a(i), a,
                           a_at + static_cast<offset_t>(row * kARow + term * kAColumn), row < rows && term >= skipped && term < left);
    }
    RG_UNROLL_8
    for (int i = kCopiesB * piece / kPieces; i < kCopiesB * (piece + 1) / kPieces; ++i) {
      if (kLinesB * kPacksB % kThreads != 0 && line_b(i) >= kLinesB) continue;
      const int column = kAcrossB ? pack_b(i) : line_b(i), term = kAcrossB ? line_b(i) : pack_b(i);
      rg_copy_or_zero<kVB>(tiles, to + kStageA + line_b(i) * kPitchB + pack_b(i), b,
                           b_at + static_cast<offset_t>(term * kBRow + column * kBColumn),
                           column < columns && term >= skipped && term < left);
    }
  };
  const auto advance = [&] {
    left -= kDepth;
    skipped = 0;
    a_at += kDepth * kAColumn;
    b_at += kDepth * kBRow;
  };
)";

// A block of terms ends with a step: its sums are multiplied by its scales and join those of the
// blocks before. What leaves after the last step are the latter.
const char kGroupedBlocks[] = R"(
  rg_tile<sum_t> totals[kTileRows][kTileColumns];
  RG_UNROLL
  for (int m = 0; m < kTileRows; ++m) {
    RG_UNROLL
    for (int n = 0; n < kTileColumns; ++n) {
      RG_UNROLL
      for (int i = 0; i < rg_tile<sum_t>::elements; ++i) totals[m][n].at[i] = 0;
    }
  }
)";

const char kGroupedBlockEnds[] = R"(
    const bool last = step + 1 == end;
    if (last || (term0 + (step + 1) * kDepth) % kScaleBlock == 0) {
      const int block = (term0 + step * kDepth) / kScaleBlock;
      const int64_t row_scales_at = kRowScalesFirst + block * kRowScalesBlock;
      const int64_t column_scales_at =
          kColumnScalesFirst + (kSumsInGroups ? 0 : group) * kColumnScalesGroup + block * kColumnScalesBlock;
      RG_UNROLL
      for (int m = 0; m < kTileRows; ++m) {
        RG_UNROLL
        for (int n = 0; n < kTileColumns; ++n) {
          RG_UNROLL
          for (int i = 0; i < rg_tile<sum_t>::elements; ++i) {
            const int row = warp_row + 16 * m + rg_tile_row(lane, i);
            const int column = warp_column + 16 * n + rg_tile_column(lane, i);
            if (row < rows && column < columns) {
              const sum_t of_row =
                  rg_load(row_scales, row_scales_at + (row0 + row) / kRowScalesLines * kRowScalesStep);
              const sum_t of_column = rg_load(
                  column_scales, column_scales_at + (column0 + column) / kColumnScalesLines * kColumnScalesStep);
              totals[m][n].at[i] += sums[m][n].at[i] * of_row * of_column;
            }
            sums[m][n].at[i] = last ? totals[m][n].at[i] : sum_t(0);
          }
        }
      }
    }
)";

const char kGroupedNoScales[] = R"(
  const auto scaled = [&](sum_t sum, int, int) { return sum; };
)";

// The rows behind the last group have no scales of columns.
const char kGroupedScales[] = R"(
  const int64_t row_scales_at =
      kRowScalesFirst + (kSumsInGroups ? group : 0) * kRowScalesGroup + row0 * kRowScalesStep;
  const int64_t column_scales_at =
      kColumnScalesFirst + group * kColumnScalesGroup + column0 * kColumnScalesStep;
  const auto scaled = [&](sum_t sum, int row, int column) {
    if (group >= kGroups) return sum;
    const sum_t of_row = rg_load(row_scales, row_scales_at + row * kRowScalesStep);
    return sum * of_row * rg_load(column_scales, column_scales_at + column * kColumnScalesStep);
  };
)";

const char kGroupedStore[] = R"(
  const auto d_at = d + (kDFirst + group * kDGroup + row0 * kDRow + column0 * kDColumn);
  for (int i = RG_THREAD; i < kRows * kColumns / kVD; i += kThreads) {
    const int row = kDownD ? i % (kRows / kVDDown) * kVDDown : i / (kColumns / kVDAlong);
    const int column = kDownD ? i / (kRows / kVDDown) : i % (kColumns / kVDAlong) * kVDAlong;
    if (row >= rows || column >= columns) continue;
    sum_t out[kVD];
    RG_UNROLL
    for (int v = 0; v < kVD; ++v) {
      const int r = row + (kDownD ? v : 0), c = column + (kDownD ? 0 : v);
      out[v] = scaled(results[r * kPitchD + c], r, c);
    }
    if (kAdds) {
      sum_t was[kVD];
      rg_load_vec<kVD>(d_at, row * kDRow + column * kDColumn, was);
      RG_UNROLL
      for (int v = 0; v < kVD; ++v) out[v] = was[v] + out[v];
    }
    rg_store_vec<kVD>(d_at, row * kDRow + column * kDColumn, out);
  }
)";

}  // namespace retrograd
