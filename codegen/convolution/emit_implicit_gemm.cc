#include "codegen/convolution/emit_implicit_gemm.h"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "codegen/convolution/convolution_writer.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/ops/convolution/stride_phases.h"

namespace retrograd {
namespace {

constexpr int kAddThreads = 256;
constexpr int64_t kMostPlaces = 8;  // of copies that a thread keeps in registers
constexpr int64_t kWarpOfHip = 64, kWarpOfOthers = 32;

// Each thread copies kCopies packs of a part of an operand: by turns along its lines, or, where
// elements of a column lie together in memory, along the columns.
constexpr char kHead[] = R"(
  const int warp = RG_THREAD / RG_WARP, lane = RG_THREAD % RG_WARP;
  const int slice = warp / (kWarpRows * kWarpColumns);
  const int warp_row = warp / kWarpColumns % kWarpRows * (kTileRows * 16);
  const int warp_column = warp % kWarpColumns * (kTileColumns * 16);
  const int split = RG_BLOCK % kSplits;
  const int column0 = RG_BLOCK / kSplits % kColumnTiles * kColumns;
  const int group = RG_BLOCK / (kColumnTiles * kSplits) % kGroups;
  const int row_tile = RG_BLOCK / (kColumnTiles * kSplits * kGroups);
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
constexpr char kInputPlaces[] = R"(
  const int row0 = (row_tile - first_tile) * kRows;
  const int rows_here = kBatch * pixels0 * pixels1 * pixels2;
  const int steps = (depth_here + kDepth - 1) / kDepth;
  const int begin = steps * split / kSplits, end = steps * (split + 1) / kSplits;
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
constexpr char kInputWholeSteps[] = R"(
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
  const auto copy = [&](int to, int part) {
    const int y_by = filter * kYC - tap0 * (kReach0 * kY0) - tap1 * (kReach1 * kY1) - tap2 * (kReach2 * kY2);
    const int w_by = filter * kWN + (first_tap0 + tap0 * kTapStep0) * kW0 +
                     (first_tap1 + tap1 * kTapStep1) * kW1 + (first_tap2 + tap2 * kTapStep2) * kW2;
    RG_UNROLL
    for (int i = kCopiesA * part / kParts; i < kCopiesA * (part + 1) / kParts; ++i) {
      if (kLinesA * kPacksA % kThreads != 0 && (kDownA ? pack_a(i) >= kDepth : line_a(i) >= kLinesA)) continue;
      const bool inside = unsigned(y0[i] - tap0 * kReach0) < unsigned(kOut0) &&
                          unsigned(y1[i] - tap1 * kReach1) < unsigned(kOut1) &&
                          unsigned(y2[i] - tap2 * kReach2) < unsigned(kOut2);
      rg_copy_or_zero<kVA>(tiles, to + line_a(i) * kPitchA + pack_a(i), a, y_at[i] + y_by, inside);
    }
    RG_UNROLL
    for (int i = kCopiesB * part / kParts; i < kCopiesB * (part + 1) / kParts; ++i) {
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

constexpr char kInputAnySteps[] = R"(
  int depth0 = begin * kDepth;
  const auto copy = [&](int to, int part) {
    RG_UNROLL
    for (int i = kCopiesA * part / kParts; i < kCopiesA * (part + 1) / kParts; ++i) {
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
    for (int i = kCopiesB * part / kParts; i < kCopiesB * (part + 1) / kParts; ++i) {
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

// The rows of the first operand are channels of y, and both have pixels of y along the sum.
constexpr char kWeightPlaces[] = R"(
  const int row0 = row_tile * kRows;
  constexpr int steps = (kPixels + kDepth - 1) / kDepth;
  const int begin = steps * split / kSplits, end = steps * (split + 1) / kSplits;
  int left = kPixels - begin * kDepth;  // pixels from here on
  int y_at[kCopiesA];
  RG_UNROLL
  for (int i = 0; i < kCopiesA; ++i) {
    const int pixel = begin * kDepth + line_a(i);
    y_at[i] = kYFirst + (group * kFiltersOfGroup + row0 + pack_a(i)) * kYC + (kDenseY ? pixel * kY2 : 0);
  }
  const auto copy_first = [&](int to, int part) {
    RG_UNROLL
    for (int i = kCopiesA * part / kParts; i < kCopiesA * (part + 1) / kParts; ++i) {
      if (kLinesA * kPacksA % kThreads != 0 && (kDownA ? pack_a(i) >= kRows : line_a(i) >= kLinesA)) continue;
      const int pixel = kPixels - left + line_a(i);
      const int by = kDenseY ? 0 : pixel / (kOut0 * kOut1 * kOut2) * kYN + pixel / (kOut1 * kOut2) % kOut0 * kY0 +
                                       pixel / kOut2 % kOut1 * kY1 + pixel % kOut2 * kY2;
      rg_copy_or_zero<kVA>(tiles, to + line_a(i) * kPitchA + pack_a(i), a, y_at[i] + by,
                           (kPixels % kDepth == 0 || line_a(i) < left) && row0 + pack_a(i) < kFiltersOfGroup);
    }
  };
  const auto advance = [&] {
    left -= kDepth;
    RG_UNROLL
    for (int i = 0; i < kCopiesA; ++i) y_at[i] += kDenseY ? kDepth * kY2 : 0;
  };
)";

// The columns of the second operand are taps and channels of x. A step advances each copy by kDepth
// pixels of y, that is kBy2 along the last dim, and so on, with a carry.
constexpr char kWeightCarry[] = R"(
  int x_at[kCopiesB], x0[kCopiesB], x1[kCopiesB], x2[kCopiesB], end0[kCopiesB], end1[kCopiesB], end2[kCopiesB];
  RG_UNROLL
  for (int i = 0; i < kCopiesB; ++i) {
    const int column = column0 + pack_b(i), tap = column / kChannelsOfGroup;
    const int pixel = begin * kDepth + line_b(i);
    const int tap2 = tap % kKernel2 * kDilation2 - kPadding2;
    const int tap1 = tap / kKernel2 % kKernel1 * kDilation1 - kPadding1;
    const int tap0 = tap / kKernel2 / kKernel1 * kDilation0 - kPadding0;
    x2[i] = pixel % kOut2 * kStride2 + tap2;
    x1[i] = pixel / kOut2 % kOut1 * kStride1 + tap1;
    x0[i] = pixel / (kOut1 * kOut2) % kOut0 * kStride0 + tap0;
    end2[i] = kOut2 * kStride2 + tap2, end1[i] = kOut1 * kStride1 + tap1, end0[i] = kOut0 * kStride0 + tap0;
    x_at[i] = kXFirst + (group * kChannelsOfGroup + column % kChannelsOfGroup) * kXC +
              pixel / (kOut0 * kOut1 * kOut2) * kXN + x0[i] * kX0 + x1[i] * kX1 + x2[i] * kX2;
  }
  const auto copy = [&](int to, int part) {
    copy_first(to, part);
    RG_UNROLL
    for (int i = kCopiesB * part / kParts; i < kCopiesB * (part + 1) / kParts; ++i) {
      if (kLinesB * kPacksB % kThreads != 0 && (kDownB ? pack_b(i) >= kColumns : line_b(i) >= kLinesB)) continue;
      const bool inside = (kPixels % kDepth == 0 || line_b(i) < left) && column0 + pack_b(i) < kAllColumns &&
                          unsigned(x0[i]) < unsigned(kIn0) && unsigned(x1[i]) < unsigned(kIn1) &&
                          unsigned(x2[i]) < unsigned(kIn2);
      rg_copy_or_zero<kVB>(tiles, to + kStageA + line_b(i) * kPitchB + pack_b(i), b, x_at[i], inside);
      x2[i] += kBy2 * kStride2, x1[i] += kBy1 * kStride1, x0[i] += kBy0 * kStride0;
      x_at[i] += kByN * kXN + kBy0 * kStride0 * kX0 + kBy1 * kStride1 * kX1 + kBy2 * kStride2 * kX2;
      if (x2[i] >= end2[i]) {
        x2[i] -= kOut2 * kStride2, x1[i] += kStride1;
        x_at[i] += kStride1 * kX1 - kOut2 * kStride2 * kX2;
      }
      if (x1[i] >= end1[i]) {
        x1[i] -= kOut1 * kStride1, x0[i] += kStride0;
        x_at[i] += kStride0 * kX0 - kOut1 * kStride1 * kX1;
      }
      if (x0[i] >= end0[i]) {
        x0[i] -= kOut0 * kStride0;
        x_at[i] += kXN - kOut0 * kStride0 * kX0;
      }
    }
  };
)";

// The same for so many copies that their places would not stay in registers.
constexpr char kWeightDivide[] = R"(
  const auto copy = [&](int to, int part) {
    copy_first(to, part);
    RG_UNROLL
    for (int i = kCopiesB * part / kParts; i < kCopiesB * (part + 1) / kParts; ++i) {
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
)";

// Copies for a later step go out between the products of this one.
constexpr char kMultiply[] = R"(
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
      for (int part = 0; part < kParts; ++part) copy(s * kStage, part);
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
    for (int part = 0; part < kParts; ++part) {
      const int k = (part * kSlices + slice) * 16;
      rg_multiply_tiles<kAcrossA, true>(
          sums, tiles, from + (kAcrossA ? k * kPitchA + warp_row : warp_row * kPitchA + k), kPitchA, tiles,
          from + kStageA + k * kPitchB + warp_column, kPitchB, lane);
      if (more) copy(to, part);
    }
    if (more) advance();
    RG_COPIES_SENT();
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

constexpr char kStoreInput[] = R"(
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

constexpr char kStoreWeight[] = R"(
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
constexpr char kAddSplits[] = R"(
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

constexpr char kAddParts[] = R"(
  RG_UNROLL
  for (int v = 0; v < kVP; ++v) parts[(part * kPacks + at) * kVP + v] = sum[v];
  RG_BARRIER();
  if (part > 0) return;
  for (int i = 1; i < kParts; ++i) {
    RG_UNROLL
    for (int v = 0; v < kVP; ++v) sum[v] += parts[(i * kPacks + at) * kVP + v];
  }
)";

constexpr char kStoreAdded[] = R"(
  if (element >= kElements) return;
  RG_UNROLL
  for (int v = 0; v < kVP; v += kVD) rg_store_vec<kVD>(d, place_of(static_cast<int>(element) + v), sum + v);
)";

bool IsInput(const ConvolutionCall& c) { return c.op == Op::convolution_input_gradient; }

// Without gaps between the pixels of all images.
bool DensePixels(const ConvolutionTensor& t) {
  int64_t step = t.strides[4];
  for (const int d : {4, 3, 2, 0}) {
    if (t.shape[d] > 1 && t.strides[d] != step) return false;
    step *= t.shape[d];
  }
  return true;
}

class Writer {
 public:
  Writer(const ConvolutionCall& call, const ImplicitGemmTile& tile, Dialect dialect)
      : w_(call, dialect, "implicit GEMM"),
        c_(call),
        tile_(tile),
        vectors_(ImplicitGemmVectorsOf(call)),
        threads_(tile.warps() * (dialect == Dialect::kHip ? kWarpOfHip : kWarpOfOthers)) {}

  DType sum_dtype() const { return w_.sum_dtype(); }
  int64_t elements() const { return IsInput(c_) ? Elements(c_.x) : Elements(c_.w); }

  // The sums of each split, or those of the only one.
  ConvolutionKernels::Launch Sums() {
    const ConvolutionTensor& second = IsInput(c_) ? c_.w : c_.x;
    w_.Read(c_.y.dtype, "a", kConvolutionFirst);
    w_.Read(second.dtype, "b", kConvolutionSecond);
    WriteResult(tile_.splits > 1);
    const int64_t element_bytes = SizeBytes(c_.y.dtype);
    const int64_t lines_a = IsInput(c_) ? tile_.rows : tile_.depth;
    const int64_t width_a = IsInput(c_) ? tile_.depth : tile_.rows;
    const int64_t pitch_a = PaddedPitch(width_a, element_bytes);
    const int64_t pitch_b = PaddedPitch(tile_.columns, element_bytes);
    const int64_t pitch_d = PaddedPitch(tile_.columns, SizeBytes(sum_dtype()));
    const int64_t stage_a = lines_a * pitch_a, stage = stage_a + tile_.depth * pitch_b;
    w_.Uses(PreludePart::kTensorCores);
    w_.Staged(c_.y.dtype, "tiles", stage * tile_.stages);
    w_.Staged(sum_dtype(), "results", tile_.rows * pitch_d);
    Geometry();
    w_.Constants({{"kRows", tile_.rows},
                  {"kColumns", tile_.columns},
                  {"kDepth", tile_.depth},
                  {"kStages", tile_.stages},
                  {"kParts", tile_.depth / 16 / tile_.slices},
                  {"kWarpRows", tile_.warp_rows},
                  {"kWarpColumns", tile_.warp_columns},
                  {"kSlices", tile_.slices},
                  {"kSplits", tile_.splits},
                  {"kThreads", threads_},
                  {"kTileRows", tile_.rows / tile_.warp_rows / 16},
                  {"kTileColumns", tile_.columns / tile_.warp_columns / 16},
                  {"kAcrossA", IsInput(c_) ? 0 : 1},
                  {"kColumnTiles", ColumnTiles(tile_, c_)},
                  {"kPitchA", pitch_a},
                  {"kPitchB", pitch_b},
                  {"kPitchD", pitch_d},
                  {"kStageA", stage_a},
                  {"kStage", stage},
                  {"kVD", tile_.splits > 1 ? vectors_.partial : vectors_.result}});
    Copies("A", vectors_.first, lines_a, width_a, c_.y.strides[1] != 1);
    Copies("B", vectors_.second, tile_.depth, tile_.columns,
           !IsInput(c_) && second.strides[1] != 1);
    w_.Text(kHead);
    IsInput(c_) ? InputPlace(tile_.splits > 1) : WeightPlace(tile_.splits > 1);
    if (IsInput(c_)) PrintPhases();
    if (IsInput(c_)) {
      w_.Text(kInputPlaces);
      w_.Text(c_.out_channels_of_group() % tile_.depth == 0 ? kInputWholeSteps : kInputAnySteps);
    } else {
      const int64_t copies = CeilDiv(tile_.depth * (tile_.columns / vectors_.second), threads_);
      StepInPixels();
      w_.Text(kWeightPlaces);
      w_.Text(copies <= kMostPlaces ? kWeightCarry : kWeightDivide);
    }
    w_.Text(kMultiply);
    w_.Text(IsInput(c_) ? kStoreInput : kStoreWeight);
    return w_.End(Product({RowTiles(tile_, c_), ColumnTiles(tile_, c_), tile_.splits}), threads_);
  }

  ConvolutionKernels::Launch AddSplits() {
    const int64_t packs = elements() / vectors_.partial;
    int64_t parts = 1;  // so that there are some 64 thousand threads
    while (parts < 16 && 2 * parts <= tile_.splits && packs * parts < (1 << 16)) parts *= 2;
    w_.Read(sum_dtype(), "a", kPartials);
    WriteResult(false);
    if (parts > 1) w_.Shared("parts", kAddThreads * vectors_.partial);
    Geometry();
    w_.Constants({{"kParts", parts},
                  {"kPacks", kAddThreads / parts},
                  {"kSplits", tile_.splits},
                  {"kVP", vectors_.partial},
                  {"kVD", std::min(vectors_.partial, vectors_.result)}});
    w_.out().Line("constexpr int64_t kElements = ", elements(), ";");
    IsInput(c_) ? InputPlace(false) : WeightPlace(false);
    ElementPlace();
    w_.Text(kAddSplits);
    if (parts > 1) w_.Text(kAddParts);
    w_.Text(kStoreAdded);
    return w_.End(CeilDiv(packs, kAddThreads / parts), kAddThreads);
  }

 private:
  static int64_t Elements(const ConvolutionTensor& t) {
    return Product({t.shape[0], t.shape[1], t.shape[2], t.shape[3], t.shape[4]});
  }

  void WriteResult(bool partial) {
    if (partial) return w_.Write(sum_dtype(), "d", kPartials);
    w_.Write(IsInput(c_) ? c_.x.dtype : c_.w.dtype, "d", kConvolutionResult);
  }

  // Offsets inside a tensor have 32 bits.
  void Geometry() {
    w_.Geometry();
    for (const auto& [name, t] : {std::pair("kX", &c_.x), {"kW", &c_.w}, {"kY", &c_.y}}) {
      w_.Constants({{absl::StrCat(name, "N"), t->strides[0]},
                    {absl::StrCat(name, "C"), t->strides[1]},
                    {absl::StrCat(name, "0"), t->strides[2]},
                    {absl::StrCat(name, "1"), t->strides[3]},
                    {absl::StrCat(name, "2"), t->strides[4]}});
    }
    w_.Constants({{"kBatch", c_.geometry.batch},
                  {"kGroups", c_.geometry.groups},
                  {"kFiltersOfGroup", c_.out_channels_of_group()},
                  {"kChannelsOfGroup", c_.in_channels_of_group()},
                  {"kPixels", Product({c_.geometry.batch, c_.out[0], c_.out[1], c_.out[2]})},
                  {"kDenseY", DensePixels(c_.y) ? 1 : 0},
                  {"kAllColumns", Product({c_.kernel[0], c_.kernel[1], c_.kernel[2],
                                           c_.in_channels_of_group()})}});
  }

  // Of lines of so many elements; down: elements of one column lie together.
  void Copies(absl::string_view of, int vector, int64_t lines, int64_t width, bool down) {
    w_.Constants({{absl::StrCat("kV", of), vector},
                  {absl::StrCat("kLines", of), lines},
                  {absl::StrCat("kPacks", of), width / vector},
                  {absl::StrCat("kDown", of), down && vector == 1 ? 1 : 0},
                  {absl::StrCat("kCopies", of), CeilDiv(lines * (width / vector), threads_)}});
  }

  // kDepth pixels of y, by dims.
  void StepInPixels() {
    int64_t rest = tile_.depth;
    for (int d = kSpatialDims; d-- > 0;) {
      w_.Constants({{absl::StrCat("kBy", d), rest % c_.out[d]}});
      rest /= c_.out[d];
    }
    w_.Constants({{"kByN", rest}});
  }

  // Of an element of the result, or of a split's sums of it.
  void InputPlace(bool partial) {
    w_.out().Line(
        "[[maybe_unused]] const auto place = [&](int n, int h0, int h1, int h2, int channel) {");
    w_.out().Line(
        partial
            ? "  return ((((int64_t(split) * kBatch + n) * kIn0 + h0) * kIn1 + h1) * kIn2 + h2) * "
              "kChannels + channel;"
            : "  return kXFirst + n * kXN + h0 * kX0 + h1 * kX1 + h2 * kX2 + channel * kXC;");
    w_.out().Line("};");
  }
  void WeightPlace(bool partial) {
    w_.out().Line("[[maybe_unused]] const auto place = [&](int filter, int column) {");
    if (partial) {
      w_.out().Line("  return (int64_t(split) * kFilters + filter) * kAllColumns + column;");
    } else {
      w_.out().Line("  const int tap = column / kChannelsOfGroup;");
      w_.out().Line(
          "  return kWFirst + filter * kWN + column % kChannelsOfGroup * kWC + tap / kKernel2 / "
          "kKernel1 * kW0 +");
      w_.out().Line("         tap / kKernel2 % kKernel1 * kW1 + tap % kKernel2 * kW2;");
    }
    w_.out().Line("};");
  }
  // Of an element in the order of a split's sums.
  void ElementPlace() {
    w_.out().Line("const auto place_of = [&](int element) {");
    w_.out().Line(IsInput(c_) ? "  return place(element / kChannels / kIn2 / kIn1 / kIn0, element "
                                "/ kChannels / kIn2 / "
                                "kIn1 % kIn0, element / kChannels / kIn2 % kIn1, element / "
                                "kChannels % kIn2, element % "
                                "kChannels);"
                              : "  return place(element / kAllColumns, element % kAllColumns);");
    w_.out().Line("};");
  }

  struct Phase {
    StridePhase of[kSpatialDims];
    int64_t depth = 0, rows = 0;
  };

  // The longest sums first: what begins last ends soon.
  std::vector<Phase> Phases() const {
    std::vector<Phase> phases;
    for (const StridePhase& p0 : StridePhases(c_, 0)) {
      for (const StridePhase& p1 : StridePhases(c_, 1)) {
        for (const StridePhase& p2 : StridePhases(c_, 2)) {
          phases.push_back(
              {.of = {p0, p1, p2},
               .depth = Product({p0.taps, p1.taps, p2.taps, c_.out_channels_of_group()}),
               .rows = Product({c_.geometry.batch, p0.pixels, p1.pixels, p2.pixels})});
        }
      }
    }
    std::stable_sort(phases.begin(), phases.end(),
                     [](const Phase& a, const Phase& b) { return a.depth > b.depth; });
    return phases;
  }

  // Numbers of the phase that a block's rows belong to.
  void PrintPhases() {
    const std::vector<Phase> phases = Phases();
    std::vector<int64_t> ends = {0};
    for (const Phase& phase : phases) ends.push_back(ends.back() + CeilDiv(phase.rows, tile_.rows));
    const auto print = [&](const std::string& name, const std::function<int64_t(size_t)>& value) {
      std::string text;
      bool same = true;
      for (size_t p = 0; p < phases.size(); ++p) {
        same = same && value(p) == value(0);
        if (p + 1 < phases.size()) absl::StrAppend(&text, "row_tile < ", ends[p + 1], " ? ");
        absl::StrAppend(&text, value(p), p + 1 < phases.size() ? " : " : "");
      }
      if (same) return w_.Constants({{name, value(0)}});
      w_.out().Line("[[maybe_unused]] const int ", name, " = ", text, ";");
    };
    print("first_tile", [&](size_t p) { return ends[p]; });
    print("depth_here", [&](size_t p) { return phases[p].depth; });
    for (int d = 0; d < kSpatialDims; ++d) {
      const auto of = [&](size_t p) -> const StridePhase& { return phases[p].of[d]; };
      print(absl::StrCat("first", d), [&](size_t p) { return of(p).first; });
      print(absl::StrCat("pixels", d), [&](size_t p) { return of(p).pixels; });
      print(absl::StrCat("shift", d), [&](size_t p) { return of(p).shift; });
      print(absl::StrCat("first_tap", d), [&](size_t p) { return of(p).tap0; });
      // A divisor, also where no tap is met and nothing is divided.
      print(absl::StrCat("taps", d), [&](size_t p) { return std::max<int64_t>(of(p).taps, 1); });
      w_.Constants({{absl::StrCat("kReach", d), of(0).reach},
                    {absl::StrCat("kTapStep", d), of(0).tap_step}});
    }
  }

  ConvolutionWriter w_;
  const ConvolutionCall& c_;
  const ImplicitGemmTile tile_;
  const ImplicitGemmVectors vectors_;
  const int64_t threads_;
};

}  // namespace

ConvolutionKernels EmitImplicitGemm(const ConvolutionCall& call, const ImplicitGemmTile& tile,
                                    Dialect dialect) {
  ConvolutionKernels kernels{.schedule = tile.Print()};
  Writer sums(call, tile, dialect);
  kernels.partial_dtype = sums.sum_dtype();
  kernels.launches.push_back(sums.Sums());
  if (tile.splits > 1) {
    kernels.partial_elements = Product({tile.splits, sums.elements()});
    kernels.launches.push_back(Writer(call, tile, dialect).AddSplits());
  }
  return kernels;
}

}  // namespace retrograd
