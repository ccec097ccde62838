#include "fusion/ops/convolution/depthwise_tiles.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "fusion/kernel/ir/scale.h"

namespace retrograd {
namespace {

constexpr int64_t kMostThreads = 512;
constexpr int64_t kMostSharedBytes = 48 << 10;  // static shared memory on any GPU
constexpr int64_t kSchedulers = 4;              // of an SM: each issues an instruction a cycle

// What orders schedules, in cycles: fitted to 16 schedules of each of 56 gradients of three
// networks on one H200, 2026-11-24, of which the first two are 1.5% over the best in the mean.
struct Costs {
  int64_t load;         // instructions of a load with its bounds, beside those of its elements
  int64_t batch;        // until a batch of loads has come
  int64_t half_issues;  // half cycles from an instruction of a thread to its next
};
constexpr Costs kInputCosts = {.load = 2, .batch = 144, .half_issues = 11};
constexpr Costs kWeightCosts = {.load = 2, .batch = 660, .half_issues = 3};
// Of the weight's gradient, in whose runs a thread loads this much before a batch takes longer, and
// how much longer for each load beyond; fitted with runs of 14 pixels to up to 100 schedules of
// each of 25 gradients of the same networks on one H100, 2026-11-26: the best of the first three
// are 0.3% over the best that was timed in the mean, the first ones 5%.
constexpr int64_t kLoadsOfBatch = 52, kMoreLoad = 10;
constexpr int kLongRun = 8;           // longer ones are for longer rows alone
constexpr int64_t kSomeTaps = 5;      // measured on an H200
constexpr int64_t kFilterLoad = 145;  // of a filter's element on its way into shared memory
constexpr int64_t kGroupAdd = 8;      // to add one more group's sums
// Of a launch that adds up the splits' sums, and of each split.
constexpr int64_t kSecondLaunch = 966, kSecondLaunchSplit = 46;

int64_t SumBytes(const ConvolutionCall& call) {
  return SizeBytes(ComputeType(call.y.dtype) == DType::kFp64 ? DType::kFp64 : DType::kFp32);
}

int64_t Multiplier(const ConvolutionCall& call) { return call.out_channels_of_group(); }

int VectorOf(const ConvolutionCall& call) {
  const auto even = [](const ConvolutionTensor& t) {
    if (t.offset % 2 != 0) return false;
    for (size_t d = 0; d < t.shape.size(); ++d) {
      if (d != 1 && t.shape[d] > 1 && t.strides[d] % 2 != 0) return false;
    }
    return true;
  };
  return Multiplier(call) == 1 && call.geometry.in_channels % 2 == 0 && even(call.x) && even(call.y)
             ? 2
             : 1;
}

// Numbers of threads along so many channels that leave few of them idle.
std::vector<int64_t> AlongChannels(int64_t channels, int64_t most) {
  std::vector<int64_t> list;
  for (const int64_t wanted : {8, 16, 32, 64, 128}) {
    const int64_t slabs = CeilDiv(channels, std::min(wanted, most));
    const int64_t each = CeilDiv(channels, slabs);
    if (std::find(list.begin(), list.end(), each) == list.end()) list.push_back(each);
  }
  return list;
}

template <typename Tile>
using WithCycles = std::vector<std::pair<int64_t, Tile>>;

template <typename Tile>
std::vector<Tile> Best(WithCycles<Tile> priced, size_t most) {
  std::stable_sort(priced.begin(), priced.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Tile> tiles;
  for (auto& [price, tile] : priced) {
    if (tiles.size() == most) break;
    tiles.push_back(tile);
  }
  return tiles;
}

// Cycles of blocks of so many threads that each wait so often for a batch of loads, and issue so
// many instructions.
int64_t Cycles(int64_t blocks, int64_t threads, int64_t batches, int64_t instructions, int64_t sms,
               const Costs& costs) {
  const int64_t warps = Product({CeilDiv(blocks, sms), CeilDiv(threads, 32)});
  return std::max(batches * costs.batch + instructions * costs.half_issues / 2,
                  CeilDiv(Product({warps, instructions}), kSchedulers));
}

// Groups of `pixels` in a row of x, those of each stride on its own.
int64_t SpotsOfRow(const ConvolutionCall& c, int64_t pixels) {
  int64_t spots = 0;
  for (int64_t phase = 0; phase < std::min(c.stride[2], c.in[2]); ++phase) {
    spots += CeilDiv(CeilDiv(c.in[2] - phase, c.stride[2]), pixels);
  }
  return spots;
}

}  // namespace

std::string DepthwiseInputTile::Print() const {
  return absl::StrCat(vector, " x ", channels, " channels, ", spots, " x ", pixels, " pixels");
}

std::string DepthwiseWeightTile::Print() const {
  return absl::StrCat(vector, " x ", channels, " channels, ", groups, " x ", runs, " runs of ",
                      pixels, " pixels");
}

int64_t TapRows(const ConvolutionCall& call) { return call.kernel[0] * call.kernel[1]; }

int64_t RunsTogether(const ConvolutionCall& call) { return call.kernel[2] <= kSomeTaps ? 2 : 1; }

int64_t OutputRuns(const DepthwiseWeightTile& tile, const ConvolutionCall& call) {
  return Product(
      {call.geometry.batch, call.out[0], call.out[1], CeilDiv(call.out[2], tile.pixels)});
}

int64_t Threads(const DepthwiseWeightTile& tile, const ConvolutionCall& call) {
  return Product({tile.channels, tile.groups, TapRows(call)});
}

int64_t Splits(const DepthwiseWeightTile& tile, const ConvolutionCall& call) {
  return CeilDiv(OutputRuns(tile, call), Product({tile.groups, tile.runs}));
}

int64_t SharedElements(const DepthwiseInputTile& tile, const ConvolutionCall& call) {
  // A pitch of the channels and two: the taps of a channel, which lie together, meet few banks.
  const int64_t pitch = Product({tile.channels, tile.vector, Multiplier(call)}) + 2;
  return Product({TapRows(call), call.kernel[2], pitch});
}

int64_t SharedElements(const DepthwiseWeightTile& tile, const ConvolutionCall& call) {
  if (tile.groups == 1) return 0;
  return Product({tile.groups, TapRows(call), call.kernel[2], tile.channels, tile.vector});
}

absl::Status DepthwiseRefusal(const ConvolutionCall& call) {
  const auto refuse = [&](const auto&... why) {
    return absl::UnimplementedError(absl::StrCat("our depthwise kernels take ", why...));
  };
  if (call.op == Op::convolution) return refuse("gradients only");
  if (call.in_channels_of_group() != 1) {
    return refuse("one channel of the input a group, not ", call.in_channels_of_group());
  }
  if (call.kernel[2] > kMostDepthwiseTaps) {
    return refuse("filters of up to ", kMostDepthwiseTaps, " taps along the last dim, not ",
                  call.kernel[2]);
  }
  for (const ConvolutionTensor* t : {&call.x, &call.w, &call.y}) {
    if (!IsFloat(t->dtype)) return refuse("floating types only, not ", Name(t->dtype));
    for (const int64_t extent : t->shape) {
      if (extent == 0) return refuse("no empty tensors");
    }
  }
  const bool wide = call.y.dtype == DType::kFp64;
  if ((call.x.dtype == DType::kFp64) != wide || (call.w.dtype == DType::kFp64) != wide) {
    return refuse("fp64 for all tensors or none");
  }
  if (call.op == Op::convolution_weight_gradient && call.x.dtype != call.y.dtype) {
    return refuse("operands of one dtype");
  }
  for (const ConvolutionTensor* t : {&call.x, &call.y}) {
    if (t->strides[1] != 1 && t->shape[1] > 1) {
      return refuse("channels that lie last, not with strides ", absl::StrJoin(t->strides, ","));
    }
  }
  constexpr int64_t kMost = int64_t{1} << 31;  // pixels and threads have numbers of 32 bits
  const int64_t channels = call.geometry.out_channels;
  for (const int64_t elements :
       {Product({call.geometry.batch, call.out[0], call.out[1], call.out[2], channels}),
        Product(
            {call.geometry.batch, call.in[0], call.in[1], call.in[2], call.geometry.in_channels}),
        Product({TapRows(call), call.kernel[2], channels})}) {
    if (elements >= kMost) return refuse("tensors of less than 2^31 elements");
  }
  const bool input = call.op == Op::convolution_input_gradient;
  if (input ? DepthwiseInputTiles(call, 1, 1).empty() : DepthwiseWeightTiles(call, 1, 1).empty()) {
    return refuse("filters that shared memory holds, not of ", absl::StrJoin(call.kernel, "x"),
                  " taps for ", Multiplier(call), " channels of the output a group");
  }
  return absl::OkStatus();
}

namespace {

WithCycles<DepthwiseInputTile> InputTiles(const ConvolutionCall& call, int64_t sms) {
  const int vector = VectorOf(call);
  const int64_t lanes = call.geometry.in_channels / vector;
  const int64_t rows = Product({call.geometry.batch, call.in[0], call.in[1]});
  const int64_t taps = CeilDiv(call.kernel[2], call.stride[2]);
  const int64_t tap_rows =
      Product({CeilDiv(call.kernel[0], call.stride[0]), CeilDiv(call.kernel[1], call.stride[1])});
  WithCycles<DepthwiseInputTile> priced;
  for (const int64_t channels : AlongChannels(lanes, 128)) {
    for (const int64_t pixels : {1, 2, 4, 7, 8}) {
      if (pixels > CeilDiv(call.in[2], call.stride[2]) && pixels > 1) continue;
      const int64_t loads = pixels + taps - 1;
      const int64_t of_row =
          Product({pixels, taps, vector}) + loads * (kInputCosts.load + vector) + taps * 2;
      const int64_t work = Product({tap_rows, Multiplier(call), of_row}) + 4 * pixels;
      for (const int64_t threads : {128, 256}) {
        const int64_t spots = std::max<int64_t>(threads / channels, 1);
        const DepthwiseInputTile tile{.vector = vector,
                                      .channels = static_cast<int>(channels),
                                      .spots = static_cast<int>(spots),
                                      .pixels = static_cast<int>(pixels)};
        if (SharedElements(tile, call) * SumBytes(call) > kMostSharedBytes) continue;
        const int64_t blocks = Product(
            {CeilDiv(lanes, channels), CeilDiv(Product({rows, SpotsOfRow(call, pixels)}), spots)});
        // Each block brings its filters into shared memory first.
        const int64_t filters = CeilDiv(SharedElements(tile, call), tile.threads());
        const int64_t batches = CeilDiv(filters, 8) + tap_rows * Multiplier(call);
        priced.push_back({Cycles(blocks, tile.threads(), batches, work + kFilterLoad * filters, sms,
                                 kInputCosts),
                          tile});
      }
    }
  }
  return priced;
}

WithCycles<DepthwiseWeightTile> WeightTiles(const ConvolutionCall& call, int64_t sms) {
  const int vector = VectorOf(call);
  const int64_t lanes = call.geometry.out_channels / vector;
  const int64_t taps = call.kernel[2];
  WithCycles<DepthwiseWeightTile> priced;
  const auto consider = [&](const DepthwiseWeightTile& tile) {
    const int64_t threads = Threads(tile, call), splits = Splits(tile, call);
    if (threads > kMostThreads) return;
    if (SharedElements(tile, call) * SumBytes(call) > kMostSharedBytes) return;
    const int64_t loads = tile.pixels * (1 + call.stride[2]) + (taps - 1) * call.dilation[2];
    const int64_t of_run =
        Product({tile.pixels, taps, vector}) + loads * (kWeightCosts.load + vector);
    const int64_t blocks = Product({CeilDiv(lanes, tile.channels), splits});
    const int64_t work = Product({tile.runs, of_run}) + kGroupAdd * tile.groups;
    const int64_t second = splits > 1 ? kSecondLaunch + splits * kSecondLaunchSplit : 0;
    const int64_t batches = CeilDiv(tile.runs, 2) + 1;
    Costs costs = kWeightCosts;
    costs.batch += kMoreLoad * std::max<int64_t>(loads * RunsTogether(call) - kLoadsOfBatch, 0);
    priced.push_back({Cycles(blocks, threads, batches, work, sms, costs) + second, tile});
  };
  for (const int64_t channels : AlongChannels(lanes, 64)) {
    for (const int groups : {1, 2, 4, 8, 16}) {
      for (const int pixels : {4, 7, 8, 14}) {
        if (pixels > kLongRun && call.out[2] <= kLongRun) continue;  // which covers the row
        DepthwiseWeightTile tile{.vector = vector,
                                 .channels = static_cast<int>(channels),
                                 .groups = groups,
                                 .pixels = pixels};
        const int64_t all = OutputRuns(tile, call);
        if (groups > 1 && groups > all) continue;
        for (const int runs : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64}) {
          if (runs > 1 && runs >= 2 * CeilDiv(all, groups)) break;
          tile.runs = runs;
          consider(tile);
        }
      }
    }
  }
  return priced;
}

template <typename Tile>
int64_t Least(const WithCycles<Tile>& tiles) {
  int64_t least = kHuge;
  for (const auto& [cycles, tile] : tiles) least = std::min(least, cycles);
  return least;
}

}  // namespace

std::vector<DepthwiseInputTile> DepthwiseInputTiles(const ConvolutionCall& call, int64_t sms,
                                                    size_t most) {
  return Best(InputTiles(call, sms), most);
}

std::vector<DepthwiseWeightTile> DepthwiseWeightTiles(const ConvolutionCall& call, int64_t sms,
                                                      size_t most) {
  return Best(WeightTiles(call, sms), most);
}

int64_t DepthwiseCycles(const ConvolutionCall& call, int64_t sms) {
  return call.op == Op::convolution_input_gradient ? Least(InputTiles(call, sms))
                                                   : Least(WeightTiles(call, sms));
}

}  // namespace retrograd
