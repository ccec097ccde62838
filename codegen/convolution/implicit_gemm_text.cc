#include "codegen/convolution/implicit_gemm_text.h"

namespace retrograd {

const char kGemmHead[] = R"(
  const int warp = RG_THREAD / RG_WARP, lane = RG_THREAD % RG_WARP;
  [[maybe_unused]] const int slice = warp / (kWarpRows * kWarpColumns);
  const int warp_row = warp / kWarpColumns % kWarpRows * (kTileRows * 16);
  [[maybe_unused]] const int warp_column = warp % kWarpColumns * (kTileColumns * 16);
  const int split = RG_BLOCK % kSplits;
  const int column0 = RG_BLOCK / kSplits % kColumnTiles * kColumns;
  const int group = RG_BLOCK / (kColumnTiles * kSplits) % kGroups;
  const int row_tile = RG_BLOCK / (kColumnTiles * kSplits * kGroups);
)";

// Each thread copies kCopies packs of a part of an operand: by turns along its lines, or, where
// elements of a column lie together in memory, along the columns.
const char kGemmCopies[] = R"(
  const auto line_a = [&](int i) {
    return kDownA ? RG_THREAD % kLinesA : RG_THREAD / kPacksA + i * (kThreads / kPacksA);
  };
  const auto pack_a = [&](int i) {
    return (kDownA ? RG_THREAD / kLinesA + i * (kThreads / kLinesA) : RG_THREAD % kPacksA) * kVA;
  };
  const auto line_b = [&](int i) {
    return kDownB ? RG_THREAD % kLinesB : RG_THREAD / kPacksB + i * (kThreads / kPacksB);
  };
  const auto pack_b = [&](int i) {
    return (kDownB ? RG_THREAD / kLinesB + i * (kThreads / kLinesB) : RG_THREAD % kPacksB) * kVB;
  };
)";

// The rows of the first operand are pixels of x: where those of y lie that the first tap of each
// dim meets.
const char kGemmInputPlaces[] = R"(
  const int row0 = (row_tile - first_tile) * kRows;
  const int rows_here = kBatch * pixels0 * pixels1 * pixels2;
  const int steps = (depth_here + kDepth - 1) / kDepth;
  const int begin = static_cast<int>(int64_t(steps) * split / kSplits);
  const int end = static_cast<int>(int64_t(steps) * (split + 1) / kSplits);
  int y_at[kCopiesA], y0[kCopiesA], y1[kCopiesA], y2[kCopiesA];
  RG_UNROLL
  for (int i = 0; i < kCopiesA; ++i) {
    int rest = row0 + line_a(i);
    const int far = rest < rows_here ? 0 : 1 << 28;  // outside of y, whatever the tap
    y2[i] = rest % pixels2 + shift2;
    rest /= pixels2;
    y1[i] = rest % pixels1 + shift1;
    rest /= pixels1;
    y0[i] = rest % pixels0 + shift0;
    y_at[i] = kYFirst + rest / pixels0 * kYN + group * kFiltersOfGroup * kYC + y0[i] * kY0 + y1[i] * kY1 +
              y2[i] * kY2;
    y2[i] -= far;
  }
)";

// Each step is of one tap: what changes from one to the next is the same for all copies.
const char kGemmInputWholeSteps[] = R"(
  int w_at[kCopiesB];
  RG_UNROLL
  for (int i = 0; i < kCopiesA; ++i) y_at[i] += pack_a(i) * kYC;
  RG_UNROLL
  for (int i = 0; i < kCopiesB; ++i) {
    w_at[i] = kWFirst + (group * kFiltersOfGroup + line_b(i)) * kWN + (column0 + pack_b(i)) * kWC;
  }
  int filter = begin * kDepth % kFiltersOfGroup, tap2 = begin * kDepth / kFiltersOfGroup;
  int tap1 = tap2 / taps2, tap0 = tap1 / taps1;
  tap2 -= tap1 * taps2, tap1 -= tap0 * taps1;
  const auto copy = [&](int to, int piece) {
    const int y_by = filter * kYC - tap0 * (kReach0 * kY0) - tap1 * (kReach1 * kY1) - tap2 * (kReach2 * kY2);
    const int w_by = filter * kWN + (first_tap0 + tap0 * kTapStep0) * kW0 +
                     (first_tap1 + tap1 * kTapStep1) * kW1 + (first_tap2 + tap2 * kTapStep2) * kW2;
    RG_UNROLL
    for (int i = kCopiesA * piece / kPieces; i < kCopiesA * (piece + 1) / kPieces; ++i) {
      if (kLinesA * kPacksA % kThreads != 0 && (kDownA ? pack_a(i) >= kDepth : line_a(i) >= kLinesA)) continue;
      const bool inside = unsigned(y0[i] - tap0 * kReach0) < unsigned(kOut0) &&
                          unsigned(y1[i] - tap1 * kReach1) < unsigned(kOut1) &&
                          unsigned(y2[i] - tap2 * kReach2) < unsigned(kOut2);
      rg_copy_or_zero<kVA>(tiles, to + line_a(i) * kPitchA + pack_a(i), a, y_at[i] + y_by, inside);
    }
    RG_UNROLL
    for (int i = kCopiesB * piece / kPieces; i < kCopiesB * (piece + 1) / kPieces; ++i) {
      if (kLinesB * kPacksB % kThreads != 0 && line_b(i) >= kLinesB) continue;
      rg_copy_or_zero<kVB>(tiles, to + kStageA + line_b(i) * kPitchB + pack_b(i), b, w_at[i] + w_by,
                           column0 + pack_b(i) < kChannelsOfGroup);
    }
  };
  const auto advance = [&] {
    filter += kDepth;
    if (filter == kFiltersOfGroup) filter = 0, ++tap2;
    if (tap2 == taps2) tap2 = 0, ++tap1;
    if (tap1 == taps1) tap1 = 0, ++tap0;
  };
)";

const char kGemmInputAnySteps[] = R"(
  int depth0 = begin * kDepth;
  const auto copy = [&](int to, int piece) {
    RG_UNROLL
    for (int i = kCopiesA * piece / kPieces; i < kCopiesA * (piece + 1) / kPieces; ++i) {
      if (kLinesA * kPacksA % kThreads != 0 && (kDownA ? pack_a(i) >= kDepth : line_a(i) >= kLinesA)) continue;
      const int at = depth0 + pack_a(i), tap = at / kFiltersOfGroup;
      const int by2 = tap % taps2 * kReach2, by1 = tap / taps2 % taps1 * kReach1;
      const int by0 = tap / taps2 / taps1 * kReach0;
      const bool inside = at < depth_here && unsigned(y0[i] - by0) < unsigned(kOut0) &&
                          unsigned(y1[i] - by1) < unsigned(kOut1) && unsigned(y2[i] - by2) < unsigned(kOut2);
      rg_copy_or_zero<kVA>(tiles, to + line_a(i) * kPitchA + pack_a(i), a,
                           y_at[i] - by0 * kY0 - by1 * kY1 - by2 * kY2 + at % kFiltersOfGroup * kYC, inside);
    }
    RG_UNROLL
    for (int i = kCopiesB * piece / kPieces; i < kCopiesB * (piece + 1) / kPieces; ++i) {
      if (kLinesB * kPacksB % kThreads != 0 && line_b(i) >= kLinesB) continue;
      const int at = depth0 + line_b(i), tap = at / kFiltersOfGroup;
      const int r2 = first_tap2 + tap % taps2 * kTapStep2, r1 = first_tap1 + tap / taps2 % taps1 * kTapStep1;
      const int r0 = first_tap0 + tap / taps2 / taps1 * kTapStep0;
      const int channel = column0 + pack_b(i);
      rg_copy_or_zero<kVB>(tiles, to + kStageA + line_b(i) * kPitchB + pack_b(i), b,
                           kWFirst + (group * kFiltersOfGroup + at % kFiltersOfGroup) * kWN + channel * kWC +
                               r0 * kW0 + r1 * kW1 + r2 * kW2,
                           at < depth_here && channel < kChannelsOfGroup);
    }
  };
  const auto advance = [&] { depth0 += kDepth; };
)";

// The rows of the first operand are channels of y, the columns of the second one taps and channels
// of x, and both have pixels of y along the sum.
const char kGemmWeightPlaces[] = R"(
  const int row0 = row_tile * kRows;
  constexpr int steps = (kPixels + kDepth - 1) / kDepth;
  const int begin = static_cast<int>(int64_t(steps) * split / kSplits);
  const int end = static_cast<int>(int64_t(steps) * (split + 1) / kSplits);
  int left = kPixels - begin * kDepth;  // pixels from here on
  int y_at[kCopiesA];
  RG_UNROLL
  for (int i = 0; i < kCopiesA; ++i) {
    const int pixel = begin * kDepth + line_a(i);
    y_at[i] = kYFirst + (group * kFiltersOfGroup + row0 + pack_a(i)) * kYC + (kDenseY ? pixel * kY2 : 0);
  }
  const auto copy = [&](int to, int piece) {
    RG_UNROLL
    for (int i = kCopiesA * piece / kPieces; i < kCopiesA * (piece + 1) / kPieces; ++i) {
      if (kLinesA * kPacksA % kThreads != 0 && (kDownA ? pack_a(i) >= kRows : line_a(i) >= kLinesA)) continue;
      const int pixel = kPixels - left + line_a(i);
      const int by = kDenseY ? 0 : pixel / (kOut0 * kOut1 * kOut2) * kYN + pixel / (kOut1 * kOut2) % kOut0 * kY0 +
                                       pixel / kOut2 % kOut1 * kY1 + pixel % kOut2 * kY2;
      rg_copy_or_zero<kVA>(tiles, to + line_a(i) * kPitchA + pack_a(i), a, y_at[i] + by,
                           (kPixels % kDepth == 0 || line_a(i) < left) && row0 + pack_a(i) < kFiltersOfGroup);
    }
    RG_UNROLL
    for (int i = kCopiesB * piece / kPieces; i < kCopiesB * (piece + 1) / kPieces; ++i) {
      if (kLinesB * kPacksB % kThreads != 0 && (kDownB ? pack_b(i) >= kColumns : line_b(i) >= kLinesB)) continue;
      const int column = column0 + pack_b(i), tap = column / kChannelsOfGroup;
      const int pixel = kPixels - left + line_b(i);
      const int h2 = pixel % kOut2 * kStride2 + tap % kKernel2 * kDilation2 - kPadding2;
      const int h1 = pixel / kOut2 % kOut1 * kStride1 + tap / kKernel2 % kKernel1 * kDilation1 - kPadding1;
      const int h0 = pixel / (kOut1 * kOut2) % kOut0 * kStride0 + tap / kKernel2 / kKernel1 * kDilation0 - kPadding0;
      const bool inside = (kPixels % kDepth == 0 || line_b(i) < left) && column < kAllColumns &&
                          unsigned(h0) < unsigned(kIn0) && unsigned(h1) < unsigned(kIn1) &&
                          unsigned(h2) < unsigned(kIn2);
      rg_copy_or_zero<kVB>(tiles, to + kStageA + line_b(i) * kPitchB + pack_b(i), b,
                           kXFirst + (group * kChannelsOfGroup + column % kChannelsOfGroup) * kXC +
                               pixel / (kOut0 * kOut1 * kOut2) * kXN + h0 * kX0 + h1 * kX1 + h2 * kX2,
                           inside);
    }
  };
  const auto advance = [&] {
    left -= kDepth;
    RG_UNROLL
    for (int i = 0; i < kCopiesA; ++i) y_at[i] += kDenseY ? kDepth * kY2 : 0;
  };
)";

const char kGemmStoreInput[] = R"(
  for (int i = RG_THREAD; i < kRows * kColumns / kVD; i += kThreads) {
    const int row = i / (kColumns / kVD), column = i % (kColumns / kVD) * kVD, channel = column0 + column;
    int rest = row0 + row;
    if (rest >= rows_here || channel >= kChannelsOfGroup) continue;
    const int h2 = first2 + rest % pixels2 * kStride2;
    rest /= pixels2;
    const int h1 = first1 + rest % pixels1 * kStride1;
    rest /= pixels1;
    const int h0 = first0 + rest % pixels0 * kStride0, n = rest / pixels0;
    sum_t out[kVD];
    RG_UNROLL
    for (int v = 0; v < kVD; ++v) out[v] = results[row * kPitchD + column + v];
    rg_store_vec<kVD>(d, place(n, h0, h1, h2, group * kChannelsOfGroup + channel), out);
  }
)";

const char kGemmStoreWeight[] = R"(
  for (int i = RG_THREAD; i < kRows * kColumns / kVD; i += kThreads) {
    const int row = i / (kColumns / kVD), column = i % (kColumns / kVD) * kVD;
    if (row0 + row >= kFiltersOfGroup || column0 + column >= kAllColumns) continue;
    sum_t out[kVD];
    RG_UNROLL
    for (int v = 0; v < kVD; ++v) out[v] = results[row * kPitchD + column + v];
    rg_store_vec<kVD>(d, place(group * kFiltersOfGroup + row0 + row, column0 + column), out);
  }
)";

// Adds the splits' sums, kParts threads for each pack, in a fixed order.
const char kGemmAddSplits[] = R"(
  const int at = RG_THREAD % kPacks, part = RG_THREAD / kPacks;
  const int64_t element = (int64_t(RG_BLOCK) * kPacks + at) * kVP;
  sum_t sum[kVP];
  RG_UNROLL
  for (int v = 0; v < kVP; ++v) sum[v] = 0;
  if (element < kElements) {
    RG_UNROLL_8
    for (int i = part; i < kSplits; i += kParts) {
      sum_t more[kVP];
      rg_load_vec<kVP>(a, int64_t(i) * kElements + element, more);
      RG_UNROLL
      for (int v = 0; v < kVP; ++v) sum[v] += more[v];
    }
  }
)";

const char kGemmAddParts[] = R"(
  RG_UNROLL
  for (int v = 0; v < kVP; ++v) parts[(part * kPacks + at) * kVP + v] = sum[v];
  RG_BARRIER();
  if (part > 0) return;
  for (int i = 1; i < kParts; ++i) {
    RG_UNROLL
    for (int v = 0; v < kVP; ++v) sum[v] += parts[(i * kPacks + at) * kVP + v];
  }
)";

const char kGemmStoreAdded[] = R"(
  if (element >= kElements) return;
  RG_UNROLL
  for (int v = 0; v < kVP; v += kVD) rg_store_vec<kVD>(d, place_of(static_cast<int>(element) + v), sum + v);
)";

}  // namespace retrograd
