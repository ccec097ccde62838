// Along one dim of a convolution's input: pixels with the same remainder by the stride, which meet
// the same taps of the filter.
#ifndef RETROGRAD_FUSION_OPS_CONVOLUTION_STRIDE_PHASES_H_
#define RETROGRAD_FUSION_OPS_CONVOLUTION_STRIDE_PHASES_H_

#include <array>
#include <cstdint>
#include <vector>

#include "fusion/ops/convolution/convolution_call.h"

namespace retrograd {

// Pixel first + stride * i, i < pixels, meets the taps tap0 + j * tap_step, j < taps. The j-th of
// them lies over pixel i + shift - j * reach of y, which may be outside.
struct StridePhase {
  int64_t first = 0, pixels = 0;
  int64_t tap0 = 0, taps = 0, shift = 0;
  int64_t tap_step = 1, reach = 1;  // the same in all phases
};

// Of every remainder that a pixel has.
std::vector<StridePhase> StridePhases(const ConvolutionCall& call, int dim);

// Pixels of all images with the same remainders in all dims, of a group's input gradient: so many
// `rows`, each the sum of `depth` products.
struct ConvolutionPhase {
  std::array<StridePhase, kSpatialDims> of;
  int64_t rows = 0, depth = 0;
};
std::vector<ConvolutionPhase> ConvolutionPhases(const ConvolutionCall& call);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_OPS_CONVOLUTION_STRIDE_PHASES_H_
