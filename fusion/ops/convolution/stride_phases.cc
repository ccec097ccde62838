#include "fusion/ops/convolution/stride_phases.h"

#include <algorithm>
#include <numeric>

#include "fusion/kernel/ir/scale.h"

namespace retrograd {

std::vector<StridePhase> StridePhases(const ConvolutionCall& call, int dim) {
  const int64_t stride = call.stride[dim], dilation = call.dilation[dim];
  const int64_t common = std::gcd(stride, dilation);
  std::vector<StridePhase> phases;
  for (int64_t first = 0; first < std::min(stride, call.in[dim]); ++first) {
    StridePhase phase{.first = first,
                      .pixels = CeilDiv(call.in[dim] - first, stride),
                      .tap_step = stride / common,
                      .reach = dilation / common};
    for (int64_t tap = call.kernel[dim]; tap-- > 0;) {
      if ((first + call.padding[dim] - tap * dilation) % stride != 0) continue;
      ++phase.taps, phase.tap0 = tap;
    }
    // Exact: of a tap that is met.
    phase.shift = (first + call.padding[dim] - phase.tap0 * dilation) / stride;
    phases.push_back(phase);
  }
  return phases;
}

std::vector<ConvolutionPhase> ConvolutionPhases(const ConvolutionCall& call) {
  std::vector<ConvolutionPhase> phases;
  for (const StridePhase& p0 : StridePhases(call, 0)) {
    for (const StridePhase& p1 : StridePhases(call, 1)) {
      for (const StridePhase& p2 : StridePhases(call, 2)) {
        phases.push_back(
            {.of = {p0, p1, p2},
             .rows = Product({call.geometry.batch, p0.pixels, p1.pixels, p2.pixels}),
             .depth = Product({p0.taps, p1.taps, p2.taps, call.out_channels_of_group()})});
      }
    }
  }
  return phases;
}

}  // namespace retrograd
