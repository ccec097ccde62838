#include "codegen/convolution/emit_depthwise.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "codegen/convolution/convolution_writer.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/ops/convolution/stride_phases.h"

namespace retrograd {
namespace {

constexpr int kFinalizeThreads = 256, kFinalizeParts = 8;  // threads that add for one element

// So few taps leave registers to load for several rows at once (measured on an H200).
constexpr int64_t kFewTaps = 3;

// Input gradient. A block holds the filters of its channels in shared memory, tap by tap. A thread
// makes kT pixels of a row, kStride2 apart, which all meet the same taps.
constexpr char kHoldFilters[] = R"(
  const int slab = RG_BLOCK % kSlabs;
  for (int i = RG_THREAD; i < kWidth * kMultiplier * kTaps; i += kThreads) {
    const int filter = slab * kWidth * kMultiplier + i / kTaps;
    if (filter < kFilters) {
      filters[i % kTaps * kPitch + i / kTaps] =
          rg_load(b, kWFirst + int64_t(filter) * kTaps + i % kTaps);
    }
  }
  RG_BARRIER();
  const int at = RG_THREAD % kLanes * kV, channel = slab * kWidth + at;
  int rest = RG_BLOCK / kSlabs * kSpots + RG_THREAD / kLanes;
  if (channel >= kChannels || rest >= kAllSpots) return;
  const int spot = rest % kSpotsOfRow;
  rest /= kSpotsOfRow;
  const int h1 = rest % kIn1;
  rest /= kIn1;
  const int h0 = rest % kIn0, n = rest / kIn0;
)";

// Of the pixels whose number has the remainder kPhase by the stride. Tap kTap0 + i * kTapStep of
// the pixel kPhase + kStride2 * j reads pixel j + kShift - i * kReach of y.
constexpr char kInputPixels[] = R"(
    const int j0 = (spot - kSpot0) * kT;
    sum_t sum[kT][kV];
    RG_UNROLL
    for (int j = 0; j < kT; ++j) {
      RG_UNROLL
      for (int v = 0; v < kV; ++v) sum[j][v] = 0;
    }
    for (int r0 = 0; r0 < kKernel0; ++r0) {
      const int s0 = h0 + kPadding0 - r0 * kDilation0;
      if (s0 < 0 || s0 % kStride0 != 0 || s0 / kStride0 >= kOut0) continue;
      RG_UNROLL_kRowsTogether
      for (int r1 = 0; r1 < kKernel1; ++r1) {
        const int s1 = h1 + kPadding1 - r1 * kDilation1;
        const bool meets = s1 >= 0 && s1 % kStride1 == 0 && s1 / kStride1 < kOut1;
        if ((kRowsTogether == 1 || kStride1 > 1) && !meets) continue;
        const int64_t row = kYFirst + n * kYStrideN + s0 / kStride0 * kYStride0 + s1 / kStride1 * kYStride1;
        for (int m = 0; m < kMultiplier; ++m) {
          sum_t window[kWindow][kV];
          RG_UNROLL
          for (int i = 0; i < kWindow; ++i) {
            const int q = j0 + kShift - (kTapsHere - 1) * kReach + i;
            rg_pack<kept_t, kV> pack;
            RG_UNROLL
            for (int v = 0; v < kV; ++v) window[i][v] = 0;
            if (meets && q >= 0 && q < kOut2) {
              rg_load_pack(a, row + q * kYStride2 + channel * kMultiplier + m, &pack);
              RG_UNROLL
              for (int v = 0; v < kV; ++v) window[i][v] = rg_lane(pack, v);
            }
          }
          RG_UNROLL
          for (int i = 0; i < kTapsHere; ++i) {
            const int tap = ((r0 * kKernel1 + r1) * kKernel2 + kTap0 + i * kTapStep) * kPitch;
            sum_t filter[kV];
            RG_UNROLL
            for (int v = 0; v < kV; ++v) filter[v] = filters[tap + (at + v) * kMultiplier + m];
            RG_UNROLL
            for (int j = 0; j < kT; ++j) {
              RG_UNROLL
              for (int v = 0; v < kV; ++v) {
                sum[j][v] += window[j + (kTapsHere - 1 - i) * kReach][v] * filter[v];
              }
            }
          }
        }
      }
    }
    RG_UNROLL
    for (int j = 0; j < kT; ++j) {
      const int h2 = kPhase + (j0 + j) * kStride2;
      if (h2 < kIn2) {
        rg_store_vec<kV>(d, kXFirst + n * kXStrideN + h0 * kXStride0 + h1 * kXStride1 + h2 * kXStride2 + channel,
                         sum[j]);
      }
    }
)";

// Weight gradient. A thread sums a row of taps of kV filters over kRuns runs of kT pixels of y.
constexpr char kWeightSums[] = R"(
  const int slab = RG_BLOCK % kSlabs, split = RG_BLOCK / kSlabs;
  const int lane = RG_THREAD % kLanes, group = RG_THREAD / kLanes / kTapRows;
  const int tap_row = RG_THREAD / kLanes % kTapRows, r0 = tap_row / kKernel1, r1 = tap_row % kKernel1;
  const int filter = (slab * kLanes + lane) * kV, channel = filter / kMultiplier;
  sum_t sum[kKernel2][kV];
  RG_UNROLL
  for (int s = 0; s < kKernel2; ++s) {
    RG_UNROLL
    for (int v = 0; v < kV; ++v) sum[s][v] = 0;
  }
  RG_UNROLL_kRunsTogether
  for (int i = 0; i < kRuns; ++i) {
    int rest = (split * kRuns + i) * kGroups + group;
    const bool mine = filter < kFilters && rest < kAllRuns;
    const int q0 = rest % kRunsOfRow * kT;
    rest /= kRunsOfRow;
    const int p1 = rest % kOut1;
    rest /= kOut1;
    const int p0 = rest % kOut0, n = rest / kOut0;
    const int h0 = p0 * kStride0 - kPadding0 + r0 * kDilation0;
    const int h1 = p1 * kStride1 - kPadding1 + r1 * kDilation1;
    const bool inside = mine && h0 >= 0 && h0 < kIn0 && h1 >= 0 && h1 < kIn1;
    if (kRunsTogether == 1 && !inside) continue;
    const int64_t y_row = kYFirst + n * kYStrideN + p0 * kYStride0 + p1 * kYStride1 + filter;
    const int64_t x_row = kXFirst + n * kXStrideN + h0 * kXStride0 + h1 * kXStride1 + channel;
    sum_t dy[kT][kV], window[kWindow][kV];
    RG_UNROLL
    for (int j = 0; j < kT; ++j) {
      rg_pack<kept_t, kV> pack;
      RG_UNROLL
      for (int v = 0; v < kV; ++v) dy[j][v] = 0;
      if (inside && q0 + j < kOut2) {
        rg_load_pack(a, y_row + (q0 + j) * kYStride2, &pack);
        RG_UNROLL
        for (int v = 0; v < kV; ++v) dy[j][v] = rg_lane(pack, v);
      }
    }
    RG_UNROLL
    for (int i2 = 0; i2 < kWindow; ++i2) {
      const int h2 = q0 * kStride2 - kPadding2 + i2;
      rg_pack<kept_t, kV> pack;
      RG_UNROLL
      for (int v = 0; v < kV; ++v) window[i2][v] = 0;
      if (inside && h2 >= 0 && h2 < kIn2) {
        rg_load_pack(b, x_row + h2 * kXStride2, &pack);
        RG_UNROLL
        for (int v = 0; v < kV; ++v) window[i2][v] = rg_lane(pack, v);
      }
    }
    RG_UNROLL
    for (int j = 0; j < kT; ++j) {
      RG_UNROLL
      for (int s = 0; s < kKernel2; ++s) {
        RG_UNROLL
        for (int v = 0; v < kV; ++v) sum[s][v] += dy[j][v] * window[j * kStride2 + s * kDilation2][v];
      }
    }
  }
)";

// What one thread has summed goes to its place.
constexpr char kStoreOwnSums[] = R"(
  if (filter >= kFilters) return;
  RG_UNROLL
  for (int s = 0; s < kKernel2; ++s) {
    RG_UNROLL
    for (int v = 0; v < kV; ++v) {
      rg_store(d, kPlace(split, tap_row * kKernel2 + s, filter + v), sum[s][v]);
    }
  }
)";

// The groups' sums are added in their order.
constexpr char kStoreGroupsSums[] = R"(
  RG_UNROLL
  for (int s = 0; s < kKernel2; ++s) {
    RG_UNROLL
    for (int v = 0; v < kV; ++v) {
      sums[(group * kTaps + tap_row * kKernel2 + s) * kWidth + lane * kV + v] = sum[s][v];
    }
  }
  RG_BARRIER();
  for (int i = RG_THREAD; i < kTaps * kWidth; i += kThreads) {
    if (slab * kWidth + i % kWidth >= kFilters) continue;
    sum_t total = 0;
    for (int g = 0; g < kGroups; ++g) total += sums[g * kTaps * kWidth + i];
    rg_store(d, kPlace(split, i / kWidth, slab * kWidth + i % kWidth), total);
  }
)";

// Adds the splits' sums, some threads for each element, in a fixed order.
constexpr char kAddSplits[] = R"(
  const int at = RG_THREAD % kElements, part = RG_THREAD / kElements;
  const int element = RG_BLOCK * kElements + at;
  sum_t sum = 0;
  if (element < kTaps * kFilters) {
    RG_UNROLL_16
    for (int i = part; i < kSplits; i += kParts) sum += rg_load(a, int64_t(i) * kTaps * kFilters + element);
  }
  sums[part * kElements + at] = sum;
  RG_BARRIER();
  if (part > 0 || element >= kTaps * kFilters) return;
  for (int i = 1; i < kParts; ++i) sum += sums[i * kElements + at];
  rg_store(d, kWFirst + int64_t(element % kFilters) * kTaps + element / kFilters, sum);
)";

class Writer {
 public:
  Writer(const ConvolutionCall& call, Dialect dialect) : w_(call, dialect, "depthwise"), c_(call) {}

  ConvolutionKernels::Launch Input(const DepthwiseInputTile& tile) {
    const int64_t multiplier = c_.out_channels_of_group();
    const int64_t slabs = CeilDiv(c_.geometry.in_channels / tile.vector, tile.channels);
    w_.Read(c_.y.dtype, "a", kConvolutionFirst);
    w_.Read(c_.w.dtype, "b", kConvolutionSecond);
    w_.Write(c_.x.dtype, "d", kConvolutionResult);
    w_.SharedSums("filters", SharedElements(tile, c_));
    w_.Geometry();
    w_.Constants({{"kV", tile.vector},
                  {"kLanes", tile.channels},
                  {"kSpots", tile.spots},
                  {"kT", tile.pixels},
                  {"kThreads", tile.threads()},
                  {"kWidth", tile.vector * tile.channels},
                  {"kSlabs", slabs},
                  {"kRowsTogether", c_.kernel[1] <= kFewTaps ? kFewTaps : 1},
                  {"kPitch", tile.vector * tile.channels * multiplier + 2}});
    const std::vector<Phase> phases = Phases(tile.pixels);
    const int64_t spots = phases.back().spot0 + phases.back().spots;
    const int64_t all = Product({c_.geometry.batch, c_.in[0], c_.in[1], spots});
    w_.Constants({{"kSpotsOfRow", spots}, {"kAllSpots", all}});
    w_.Text(kHoldFilters);
    for (const Phase& phase : phases) PrintPhase(phase, tile.pixels, &phase == &phases.back());
    return w_.End(slabs * CeilDiv(all, tile.spots), tile.threads());
  }

  // Its result is the sums of each split, or those of the only one.
  ConvolutionKernels::Launch Weight(const DepthwiseWeightTile& tile) {
    const int64_t splits = Splits(tile, c_);
    const int64_t slabs = CeilDiv(c_.geometry.out_channels / tile.vector, tile.channels);
    w_.Read(c_.y.dtype, "a", kConvolutionFirst);
    w_.Read(c_.x.dtype, "b", kConvolutionSecond);
    splits > 1 ? w_.Write(sum_dtype(), "d", kPartials)
               : w_.Write(c_.w.dtype, "d", kConvolutionResult);
    if (tile.groups > 1) w_.SharedSums("sums", SharedElements(tile, c_));
    w_.Geometry();
    w_.Constants(
        {{"kV", tile.vector},
         {"kLanes", tile.channels},
         {"kGroups", tile.groups},
         {"kRuns", tile.runs},
         {"kT", tile.pixels},
         {"kThreads", Threads(tile, c_)},
         {"kWidth", tile.vector * tile.channels},
         {"kSlabs", slabs},
         {"kRunsTogether", RunsTogether(c_)},
         {"kTapRows", TapRows(c_)},
         {"kRunsOfRow", CeilDiv(c_.out[2], tile.pixels)},
         {"kAllRuns", OutputRuns(tile, c_)},
         {"kWindow", (tile.pixels - 1) * c_.stride[2] + (c_.kernel[2] - 1) * c_.dilation[2] + 1}});
    w_.out().Line("const auto kPlace = [](int split, int tap, int filter) {");
    w_.out().Line(splits > 1 ? "  return (int64_t(split) * kTaps + tap) * kFilters + filter;"
                             : "  return kWFirst + split + int64_t(filter) * kTaps + tap;");
    w_.out().Line("};");
    w_.Text(kWeightSums);
    w_.Text(tile.groups > 1 ? kStoreGroupsSums : kStoreOwnSums);
    return w_.End(slabs * splits, Threads(tile, c_));
  }

  ConvolutionKernels::Launch AddSplits(int64_t splits) {
    constexpr int kElements = kFinalizeThreads / kFinalizeParts;
    w_.Read(sum_dtype(), "a", kPartials);
    w_.Write(c_.w.dtype, "d", kConvolutionResult);
    w_.SharedSums("sums", kFinalizeThreads);
    w_.Geometry();
    w_.Constants({{"kElements", kElements}, {"kParts", kFinalizeParts}, {"kSplits", splits}});
    w_.Text(kAddSplits);
    return w_.End(
        CeilDiv(Product({TapRows(c_), c_.kernel[2], c_.geometry.out_channels}), kElements),
        kFinalizeThreads);
  }

  DType sum_dtype() const { return w_.sum_dtype(); }

 private:
  // Of the last dim, and where its spots, groups of so many pixels of a row, begin.
  struct Phase {
    StridePhase of;
    int64_t spot0 = 0, spots = 0;
  };

  std::vector<Phase> Phases(int64_t pixels) const {
    std::vector<Phase> phases;
    int64_t spots = 0;
    for (const StridePhase& phase : StridePhases(c_, kSpatialDims - 1)) {
      phases.push_back({phase, spots, CeilDiv(phase.pixels, pixels)});
      spots += phases.back().spots;
    }
    return phases;
  }

  void PrintPhase(const Phase& phase, int64_t pixels, bool last) {
    if (last) {
      w_.out().OpenScope();
    } else {
      w_.out().Open("if (spot < ", phase.spot0 + phase.spots, ")");
    }
    const int64_t window = pixels + std::max<int64_t>(phase.of.taps - 1, 0) * phase.of.reach;
    w_.Constants({{"kPhase", phase.of.first},
                  {"kSpot0", phase.spot0},
                  {"kTap0", phase.of.tap0},
                  {"kTapsHere", phase.of.taps},
                  {"kTapStep", phase.of.tap_step},
                  {"kReach", phase.of.reach},
                  {"kShift", phase.of.shift},
                  {"kWindow", window}});
    w_.Text(kInputPixels);
    if (!last) w_.out().Line("return;");
    w_.out().Close();
  }

  ConvolutionWriter w_;
  const ConvolutionCall& c_;
};

}  // namespace

ConvolutionKernels EmitDepthwiseInputGradient(const ConvolutionCall& call,
                                              const DepthwiseInputTile& tile, Dialect dialect) {
  ConvolutionKernels kernels{.schedule = tile.Print()};
  kernels.launches.push_back(Writer(call, dialect).Input(tile));
  return kernels;
}

ConvolutionKernels EmitDepthwiseWeightGradient(const ConvolutionCall& call,
                                               const DepthwiseWeightTile& tile, Dialect dialect) {
  ConvolutionKernels kernels{.schedule = tile.Print()};
  const int64_t splits = Splits(tile, call);
  Writer sums(call, dialect);
  kernels.partial_dtype = sums.sum_dtype();
  kernels.launches.push_back(sums.Weight(tile));
  if (splits > 1) {
    kernels.partial_elements =
        Product({splits, TapRows(call), call.kernel[2], call.geometry.out_channels});
    kernels.launches.push_back(Writer(call, dialect).AddSplits(splits));
  }
  return kernels;
}

}  // namespace retrograd
