#include "codegen/convolution/implicit_gemm_boxes.h"

namespace retrograd {

// Rows are pixels of x. From the pixel of y that the last tap meets, the walk's, offsets lead to
// those of the others.
const char kBoxInputSteps[] = R"(
  const int row0 = (row_tile - first_tile) * kRows;
  const int rows_here = kBatch * pixels0 * pixels1 * pixels2;
  const int steps = depth_here / kFiltersOfGroup * kFilterSteps;
  const int begin = static_cast<int>(int64_t(steps) * split / kSplits);
  const int end = static_cast<int>(int64_t(steps) * (split + 1) / kSplits);
  int y0[kRows / 64], y1[kRows / 64], y2[kRows / 64], image[kRows / 64];
  RG_UNROLL
  for (int box = 0; box < kRows / 64; ++box) {
    int rest = row0 + 64 * box;
    y2[box] = rest % pixels2 + shift2 - (taps2 - 1) * kReach2;
    rest /= pixels2;
    y1[box] = rest % pixels1 + shift1 - (taps1 - 1) * kReach1;
    rest /= pixels1;
    y0[box] = rest % pixels0 + shift0 - (taps0 - 1) * kReach0;
    image[box] = rest / pixels0;
  }
  int filter = begin % kFilterSteps * kDepth, tap2 = begin / kFilterSteps;
  int tap1 = tap2 / taps2, tap0 = tap1 / taps1;
  tap2 -= tap1 * taps2, tap1 -= tap0 * taps1;
  const auto load = [&](int at, int stage) {
    RG_UNROLL
    for (int box = 0; box < kRows / 64; ++box) {
      RG_LOAD_PIXELS(tiles, at + 4096 * box, loaded, stage, a, walks, walk, group * kFiltersOfGroup + filter,
                     y0[box], y1[box], y2[box], image[box], (taps0 - 1 - tap0) * kReach0,
                     (taps1 - 1 - tap1) * kReach1, (taps2 - 1 - tap2) * kReach2);
    }
    const int column = column0 + (first_tap0 + tap0 * kTapStep0) * kW0 + (first_tap1 + tap1 * kTapStep1) * kW1 +
                       (first_tap2 + tap2 * kTapStep2) * kW2;
    RG_UNROLL
    for (int box = 0; box < kColumns / 64; ++box) {
      RG_LOAD_LINES(tiles, at + kStageA + 4096 * box, loaded, stage, b, matrix, kWalks, column + 64 * box,
                    group * kFiltersOfGroup + filter);
    }
    filter += kDepth;
    if (filter >= kFiltersOfGroup) filter = 0, ++tap2;
    if (tap2 == taps2) tap2 = 0, ++tap1;
    if (tap1 == taps1) tap1 = 0, ++tap0;
  };
)";

// The sum is over pixels of y. Of x each box has the pixels that one tap meets there.
const char kBoxWeightSteps[] = R"(
  const int row0 = row_tile * kRows;
  constexpr int steps = (kPixels + kDepth - 1) / kDepth;
  const int begin = static_cast<int>(int64_t(steps) * split / kSplits);
  const int end = static_cast<int>(int64_t(steps) * (split + 1) / kSplits);
  int pixel = begin * kDepth;
  const auto load = [&](int at, int stage) {
    RG_UNROLL
    for (int box = 0; box < kRows / 64; ++box) {
      RG_LOAD_LINES(tiles, at + 4096 * box, loaded, stage, a, matrix, kWalks,
                    group * kFiltersOfGroup + row0 + 64 * box, pixel);
    }
    const int x2 = pixel % kOut2 * kStride2 - kPadding2, x1 = pixel / kOut2 % kOut1 * kStride1 - kPadding1;
    const int x0 = pixel / (kOut1 * kOut2) % kOut0 * kStride0 - kPadding0, image = pixel / (kOut0 * kOut1 * kOut2);
    RG_UNROLL
    for (int box = 0; box < kColumns / 64; ++box) {
      const int of = column0 / 64 + box, tap = of / kChannelBoxes % kTaps;
      RG_LOAD_PIXELS(tiles, at + kStageA + 4096 * box, loaded, stage, b, walks, 0,
                     group * kChannelsOfGroup + of % kChannelBoxes * 64, x0, x1, x2, image,
                     tap / kKernel2 / kKernel1 * kDilation0, tap / kKernel2 % kKernel1 * kDilation1,
                     tap % kKernel2 * kDilation2);
    }
    pixel += kDepth;
  };
)";

// The boxes of a step come into the stage that the step before the last has left: it has been
// multiplied when all threads have seen the one behind it begin.
const char kBoxProduct[] = R"(
  rg_tile<sum_t> sums[kTileColumns];
  RG_UNROLL
  for (int n = 0; n < kTileColumns; ++n) {
    RG_UNROLL
    for (int i = 0; i < rg_tile<sum_t>::elements; ++i) sums[n].at[i] = 0;
  }
  RG_BOXES_BEGIN(loaded, kStages);
  const int first_box = RG_FIRST_BOX(tiles);
  const auto send = [&](int stage) {
    if (RG_THREAD != 0) return;
    RG_BOXES_EXPECT(loaded, stage, kStageBytes);
    load(first_box + stage * kStage, stage);
  };
  for (int s = 0; s < kStages - 1; ++s) {
    if (begin + s < end) send(s);
    RG_BOXES_SENT();
  }
  int stage = 0, parity = 0;
  for (int step = begin; step < end; ++step) {
    RG_BOXES_WAIT(loaded, stage, parity, kStages - 2);
    rg_multiply_boxes<kAcrossA, kAcrossB>(sums, tiles, first_box + stage * kStage + warp_row / 64 * 4096,
                                          first_box + stage * kStage + kStageA, warp_row % 64, lane);
    RG_BOXES_FREE();
    if (step + kStages - 1 < end) send(stage == 0 ? kStages - 1 : stage - 1);
    RG_BOXES_SENT();
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
  RG_BOXES_END(sums);
  RG_UNROLL
  for (int n = 0; n < kTileColumns; ++n) {
    RG_UNROLL
    for (int i = 0; i < rg_tile<sum_t>::elements; ++i) {
      results[(warp_row + rg_tile_row(lane, i)) * kPitchD + 16 * n + rg_tile_column(lane, i)] = sums[n].at[i];
    }
  }
  RG_BARRIER();
)";

const char kBoxStoreWeight[] = R"(
  for (int i = RG_THREAD; i < kRows * kColumns / kVD; i += kThreads) {
    const int row = i / (kColumns / kVD), column = i % (kColumns / kVD) * kVD;
    const int of = (column0 + column) / 64, tap = of / kChannelBoxes;
    const int channel = of % kChannelBoxes * 64 + column % 64;
    if (row0 + row >= kFiltersOfGroup || tap >= kTaps || channel >= kChannelsOfGroup) continue;
    sum_t out[kVD];
    RG_UNROLL
    for (int v = 0; v < kVD; ++v) out[v] = results[row * kPitchD + column + v];
    rg_store_vec<kVD>(d, place(group * kFiltersOfGroup + row0 + row, tap * kChannelsOfGroup + channel), out);
  }
)";

}  // namespace retrograd
