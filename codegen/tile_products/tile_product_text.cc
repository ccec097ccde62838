#include "codegen/tile_products/tile_product_text.h"

#include "absl/strings/str_cat.h"

namespace retrograd {
namespace {

// Copies for a later step go out between the products of this one.
constexpr char kSteps[] = R"(
  rg_tile<sum_t> sums[kTileRows][kTileColumns];
  RG_UNROLL
  for (int m = 0; m < kTileRows; ++m) {
    RG_UNROLL
    for (int n = 0; n < kTileColumns; ++n) {
      RG_UNROLL
      for (int i = 0; i < rg_tile<sum_t>::elements; ++i) sums[m][n].at[i] = 0;
    }
  }
  for (int s = 0; s < kStages - 1; ++s) {
    if (begin + s < end) {
      RG_UNROLL
      for (int piece = 0; piece < kPieces; ++piece) copy(s * kStage, piece);
      advance();
    }
    RG_COPIES_SENT();
  }
  int from = 0, to = (kStages - 1) * kStage;
  for (int step = begin; step < end; ++step) {
    RG_COPIES_WAIT(kStages - 2);
    RG_BARRIER();
    const bool more = step + kStages - 1 < end;
    RG_UNROLL
    for (int piece = 0; piece < kPieces; ++piece) {
      const int k = (piece * kSlices + slice) * 16;
      rg_multiply_tiles<kAcrossA, kAcrossB>(
          sums, tiles, from + (kAcrossA ? k * kPitchA + warp_row : warp_row * kPitchA + k), kPitchA, tiles,
          from + kStageA + (kAcrossB ? k * kPitchB + warp_column : warp_column * kPitchB + k), kPitchB, lane);
      if (more) copy(to, piece);
    }
    if (more) advance();
    RG_COPIES_SENT();
)";

constexpr char kSums[] = R"(
    from = from == (kStages - 1) * kStage ? 0 : from + kStage;
    to = to == (kStages - 1) * kStage ? 0 : to + kStage;
  }
  RG_COPIES_WAIT(0);
  RG_BARRIER();
  for (int s = 0; s < kSlices; ++s) {
    if (slice == s) {
      RG_UNROLL
      for (int m = 0; m < kTileRows; ++m) {
        RG_UNROLL
        for (int n = 0; n < kTileColumns; ++n) {
          RG_UNROLL
          for (int i = 0; i < rg_tile<sum_t>::elements; ++i) {
            const int at = (warp_row + 16 * m + rg_tile_row(lane, i)) * kPitchD + warp_column + 16 * n +
                           rg_tile_column(lane, i);
            const sum_t before = s == 0 ? sum_t(0) : sum_t(results[at]);
            results[at] = before + sums[m][n].at[i];
          }
        }
      }
    }
    RG_BARRIER();
  }
)";

}  // namespace

std::string TileProduct(absl::string_view behind_step) {
  return absl::StrCat(kSteps, behind_step, kSums);
}

}  // namespace retrograd
