#include "codegen/convolution/emit_depthwise.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "codegen/print/kernel_text.h"
#include "codegen/print/source_writer.h"
#include "fusion/kernel/ir/scale.h"

namespace retrograd {
namespace {

constexpr int kFinalizeThreads = 256, kFinalizeParts = 8;  // threads that add for one element

// So few taps leave registers to load for several rows, or runs, at once (measured on an H200).
constexpr int64_t kFewTaps = 3, kSomeTaps = 5;

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
  Writer(const ConvolutionCall& call, Dialect dialect)
      : c_(call),
        sum_(ComputeType(call.y.dtype) == DType::kFp64 ? DType::kFp64 : DType::kFp32),
        kept_(call.y.dtype),
        unroll_(SpellingOf(dialect).unroll) {
    launch_.kernel.direct = true;
    launch_.kernel.function.comment =
        absl::StrCat("// ", Name(dialect), ": ", Name(call.op), ", depthwise\n");
    out_.SetDepth(1);
  }

  ConvolutionKernels::Launch Input(const DepthwiseInputTile& tile) {
    const int64_t multiplier = c_.out_channels_of_group();
    const int64_t slabs = CeilDiv(c_.geometry.in_channels / tile.vector, tile.channels);
    Argument(c_.y.dtype, "a", kConvolutionFirst);
    Argument(c_.w.dtype, "b", kConvolutionSecond);
    Argument(c_.x.dtype, "d", kConvolutionResult);
    Shared("filters", SharedElements(tile, c_));
    Geometry();
    Constants({{"kV", tile.vector},
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
    Constants({{"kSpotsOfRow", spots}, {"kAllSpots", all}});
    Text(kHoldFilters);
    for (const Phase& phase : phases) PrintPhase(phase, tile.pixels, &phase == &phases.back());
    return End(slabs * CeilDiv(all, tile.spots), tile.threads());
  }

  // Its result is the sums of each split, or those of the only one.
  ConvolutionKernels::Launch Weight(const DepthwiseWeightTile& tile) {
    const int64_t splits = Splits(tile, c_);
    const int64_t slabs = CeilDiv(c_.geometry.out_channels / tile.vector, tile.channels);
    Argument(c_.y.dtype, "a", kConvolutionFirst);
    Argument(c_.x.dtype, "b", kConvolutionSecond);
    Argument(splits > 1 ? sum_ : c_.w.dtype, "d", splits > 1 ? kPartials : kConvolutionResult);
    if (tile.groups > 1) Shared("sums", SharedElements(tile, c_));
    Geometry();
    Constants(
        {{"kV", tile.vector},
         {"kLanes", tile.channels},
         {"kGroups", tile.groups},
         {"kRuns", tile.runs},
         {"kT", tile.pixels},
         {"kThreads", Threads(tile, c_)},
         {"kWidth", tile.vector * tile.channels},
         {"kSlabs", slabs},
         {"kRunsTogether", c_.kernel[2] <= kSomeTaps ? 2 : 1},
         {"kTapRows", TapRows(c_)},
         {"kRunsOfRow", CeilDiv(c_.out[2], tile.pixels)},
         {"kAllRuns", OutputRuns(tile, c_)},
         {"kWindow", (tile.pixels - 1) * c_.stride[2] + (c_.kernel[2] - 1) * c_.dilation[2] + 1}});
    out_.Line("const auto kPlace = [](int split, int tap, int filter) {");
    out_.Line(splits > 1 ? "  return (int64_t(split) * kTaps + tap) * kFilters + filter;"
                         : "  return kWFirst + split + int64_t(filter) * kTaps + tap;");
    out_.Line("};");
    Text(kWeightSums);
    Text(tile.groups > 1 ? kStoreGroupsSums : kStoreOwnSums);
    return End(slabs * splits, Threads(tile, c_));
  }

  ConvolutionKernels::Launch AddSplits(int64_t splits) {
    constexpr int kElements = kFinalizeThreads / kFinalizeParts;
    Argument(sum_, "a", kPartials);
    Argument(c_.w.dtype, "d", kConvolutionResult);
    Shared("sums", kFinalizeThreads);
    Geometry();
    Constants({{"kElements", kElements}, {"kParts", kFinalizeParts}, {"kSplits", splits}});
    Text(kAddSplits);
    return End(CeilDiv(Product({TapRows(c_), c_.kernel[2], c_.geometry.out_channels}), kElements),
               kFinalizeThreads);
  }

  DType sum_dtype() const { return sum_; }

 private:
  // Pixels of a row with the same remainder by the stride, and the taps that they meet.
  struct Phase {
    int64_t first = 0, spot0 = 0, spots = 0;
    int64_t tap0 = 0, taps = 0, tap_step = 1, reach = 1, shift = 0;
  };

  std::vector<Phase> Phases(int64_t pixels) const {
    const int64_t stride = c_.stride[2], dilation = c_.dilation[2];
    const int64_t common = std::gcd(stride, dilation);
    std::vector<Phase> phases;
    int64_t spots = 0;
    for (int64_t first = 0; first < std::min(stride, c_.in[2]); ++first) {
      Phase phase{.first = first, .spot0 = spots};
      phase.spots = CeilDiv(CeilDiv(c_.in[2] - first, stride), pixels);
      phase.tap_step = stride / common, phase.reach = dilation / common;
      for (int64_t tap = c_.kernel[2]; tap-- > 0;) {
        if ((first + c_.padding[2] - tap * dilation) % stride != 0) continue;
        ++phase.taps, phase.tap0 = tap;
      }
      // Exact: of a tap that is met.
      phase.shift = (first + c_.padding[2] - phase.tap0 * dilation) / stride;
      spots += phase.spots;
      phases.push_back(phase);
    }
    return phases;
  }

  void PrintPhase(const Phase& phase, int64_t pixels, bool last) {
    if (last) {
      out_.OpenScope();
    } else {
      out_.Open("if (spot < ", phase.spot0 + phase.spots, ")");
    }
    const int64_t window = pixels + std::max<int64_t>(phase.taps - 1, 0) * phase.reach;
    Constants({{"kPhase", phase.first},
               {"kSpot0", phase.spot0},
               {"kTap0", phase.tap0},
               {"kTapsHere", phase.taps},
               {"kTapStep", phase.tap_step},
               {"kReach", phase.reach},
               {"kShift", phase.shift},
               {"kWindow", window}});
    Text(kInputPixels);
    if (!last) out_.Line("return;");
    out_.Close();
  }

  struct Constant {
    std::string name;
    int64_t value;
  };
  void Constants(const std::vector<Constant>& constants) {
    for (const Constant& c : constants) {
      out_.Line("[[maybe_unused]] constexpr int ", c.name, " = ", c.value, ";");
    }
  }

  void Geometry() {
    out_.Line("typedef ", ComputeName(sum_), " sum_t;");
    out_.Line("typedef ", StorageName(kept_), " kept_t;");
    for (int d = 0; d < kSpatialDims; ++d) {
      Constants({{absl::StrCat("kIn", d), c_.in[d]},
                 {absl::StrCat("kOut", d), c_.out[d]},
                 {absl::StrCat("kKernel", d), c_.kernel[d]},
                 {absl::StrCat("kStride", d), c_.stride[d]},
                 {absl::StrCat("kPadding", d), c_.padding[d]},
                 {absl::StrCat("kDilation", d), c_.dilation[d]}});
    }
    Constants({{"kChannels", c_.geometry.in_channels},
               {"kFilters", c_.geometry.out_channels},
               {"kMultiplier", c_.out_channels_of_group()},
               {"kTaps", Product({TapRows(c_), c_.kernel[2]})}});
    out_.Line("[[maybe_unused]] constexpr int64_t kWFirst = ", c_.w.offset, ";");
    Strides("kX", c_.x);
    Strides("kY", c_.y);
  }

  void Strides(absl::string_view prefix, const ConvolutionTensor& t) {
    out_.Line("[[maybe_unused]] constexpr int64_t ", prefix, "First = ", t.offset, ", ", prefix,
              "StrideN = ", t.strides[0], ", ", prefix, "Stride0 = ", t.strides[2], ", ", prefix,
              "Stride1 = ", t.strides[3], ", ", prefix, "Stride2 = ", t.strides[4], ";");
  }

  // As it stands, but for the dialect's word before loops that are unrolled.
  void Text(absl::string_view text) {
    for (absl::string_view rest = text; !rest.empty();) {
      const size_t end = rest.find('\n');
      const absl::string_view line = rest.substr(0, end);
      rest.remove_prefix(end == absl::string_view::npos ? rest.size() : end + 1);
      if (const size_t word = line.find("RG_UNROLL"); word != absl::string_view::npos) {
        out_.Pragma(Unrolled(line.substr(word)));
      } else {
        out_.Pragma(line);
      }
    }
  }

  // "RG_UNROLL": all of the loop; "RG_UNROLL_kN": so many rounds at once.
  std::string Unrolled(absl::string_view word) const {
    if (unroll_.empty() || !absl::ConsumePrefix(&word, "RG_UNROLL_")) return std::string(unroll_);
    return absl::StrCat(unroll_, " ", word);
  }

  void Argument(DType dtype, absl::string_view name, ConvolutionSlot slot) {
    const bool written = slot == kConvolutionResult || (slot == kPartials && name == "d");
    launch_.kernel.function.declarations.push_back(
        {.type = absl::StrCat(written ? "" : "const ", StorageName(dtype)),
         .name = std::string(name),
         .at = static_cast<int64_t>(launch_.args.size())});
    launch_.args.push_back(slot);
  }

  void Shared(absl::string_view name, int64_t elements) {
    launch_.kernel.threads_meet = true;
    launch_.kernel.shared_bytes = elements * SizeBytes(sum_);
    launch_.kernel.function.declarations.push_back({.kind = Declaration::kShared,
                                                    .type = std::string(ComputeName(sum_)),
                                                    .name = std::string(name),
                                                    .count = elements});
  }

  ConvolutionKernels::Launch End(int64_t blocks, int64_t threads) {
    Kernel& kernel = launch_.kernel;
    kernel.blocks = blocks;
    kernel.threads = static_cast<int>(threads);
    kernel.arguments = static_cast<int>(launch_.args.size());
    kernel.function.statements = out_.text();
    NameKernel(&kernel);
    return std::move(launch_);
  }

  const ConvolutionCall& c_;
  const DType sum_, kept_;
  const absl::string_view unroll_;
  SourceWriter out_;
  ConvolutionKernels::Launch launch_;
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
