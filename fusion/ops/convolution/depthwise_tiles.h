// The schedules of kernels for depthwise convolutions' gradients, channels last: what a thread and
// a block make. Code generation prints exactly these tiles.
#ifndef RETROGRAD_FUSION_OPS_CONVOLUTION_DEPTHWISE_TILES_H_
#define RETROGRAD_FUSION_OPS_CONVOLUTION_DEPTHWISE_TILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "fusion/ops/convolution/convolution_call.h"

namespace retrograd {

// OK, or Unimplemented with what keeps the call from being made by these kernels: they take one
// channel of the input for each group, x and y with their channels last, and filters of at most
// kMostDepthwiseTaps along the last dim.
inline constexpr int64_t kMostDepthwiseTaps = 32;
absl::Status DepthwiseRefusal(const ConvolutionCall& call);

// Of the input's gradient. A thread makes `pixels` of a row, one stride apart, of `vector`
// channels.
struct DepthwiseInputTile {
  int vector = 1;
  int channels = 1;  // threads along the channels
  int spots = 1;     // threads along the pixels: groups of `pixels`
  int pixels = 1;

  int threads() const { return channels * spots; }
  friend bool operator==(const DepthwiseInputTile&, const DepthwiseInputTile&) = default;
  std::string Print() const;  // "2 x 48 channels, 4 x 7 pixels"
};

// Of the weight's gradient. A thread sums one row of taps for `vector` channels over `runs` runs of
// `pixels` in y's rows; the blocks' sums are added up by a second launch where there are several.
struct DepthwiseWeightTile {
  int vector = 1;
  int channels = 1;  // threads along the channels
  int groups = 1;    // threads that sum other runs for the same taps
  int runs = 1;
  int pixels = 1;

  friend bool operator==(const DepthwiseWeightTile&, const DepthwiseWeightTile&) = default;
  std::string Print() const;  // "2 x 16 channels, 4 x 1 runs of 7 pixels"
};

// Rows of taps: a filter's extents but for the last one.
int64_t TapRows(const ConvolutionCall& call);
// Runs of the weight's gradient that a thread loads before it works on the first: few taps leave
// registers for two.
int64_t RunsTogether(const ConvolutionCall& call);
// Runs of pixels in y.
int64_t OutputRuns(const DepthwiseWeightTile& tile, const ConvolutionCall& call);
int64_t Threads(const DepthwiseWeightTile& tile, const ConvolutionCall& call);
// Blocks that sum for the same channels.
int64_t Splits(const DepthwiseWeightTile& tile, const ConvolutionCall& call);
// Elements of shared memory in which a block holds the filters, or its threads' sums.
int64_t SharedElements(const DepthwiseInputTile& tile, const ConvolutionCall& call);
int64_t SharedElements(const DepthwiseWeightTile& tile, const ConvolutionCall& call);

// The tiles that a call can have on a device of so many SMs, those that a model of issue slots
// takes to be the fastest first; at most `most`, and at least one. The call passes
// DepthwiseRefusal.
std::vector<DepthwiseInputTile> DepthwiseInputTiles(const ConvolutionCall& call, int64_t sms,
                                                    size_t most);
std::vector<DepthwiseWeightTile> DepthwiseWeightTiles(const ConvolutionCall& call, int64_t sms,
                                                      size_t most);

// Cycles of an SM that the fastest of them is taken to need, without its launch.
int64_t DepthwiseCycles(const ConvolutionCall& call, int64_t sms);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_OPS_CONVOLUTION_DEPTHWISE_TILES_H_
