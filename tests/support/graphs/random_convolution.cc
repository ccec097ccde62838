#include "tests/support/graphs/random_convolution.h"

#include <utility>

namespace retrograd {
namespace {

using Drawer = absl::FunctionRef<int64_t(int64_t, int64_t)>;

constexpr int64_t kMostKernel = 3, kMostStride = 3, kMostDilation = 2, kMostPadding = 2;

// The extents of one spatial dim.
struct Line {
  int64_t in = 0, out = 0, kernel = 1, stride = 1, padding = 0, dilation = 1;
};

// Around an input of this extent, or around an output.
std::optional<Line> DrawLine(int64_t extent, bool is_output, Drawer draw) {
  Line l{.kernel = draw(1, kMostKernel),
         .stride = draw(1, kMostStride),
         .padding = draw(0, kMostPadding),
         .dilation = draw(1, kMostDilation)};
  const int64_t window = l.dilation * (l.kernel - 1) + 1;
  if (is_output) {
    l.out = extent;
    // The last pixels of the input may be such that no window reads.
    l.in = (extent - 1) * l.stride + window - 2 * l.padding + draw(0, l.stride - 1);
    if (extent < 1 || l.in < 1) return std::nullopt;
  } else {
    l.in = extent;
    if (extent < 1 || extent + 2 * l.padding < window) return std::nullopt;
    l.out = (extent + 2 * l.padding - window) / l.stride + 1;
  }
  return l;
}

// One of the numbers that divide `channels`.
int64_t DrawGroups(int64_t channels, Drawer draw) {
  const int64_t groups = draw(0, 1) == 0 ? 1 : draw(1, channels);
  return channels % groups == 0 ? groups : 1;
}

}  // namespace

std::optional<RandomConvolution> DrawConvolution(const Shape& given, Drawer draw) {
  constexpr Op kOps[] = {Op::convolution, Op::convolution_input_gradient,
                         Op::convolution_weight_gradient};
  RandomConvolution made;
  made.op = kOps[draw(0, 2)];
  const bool weight_gradient = made.op == Op::convolution_weight_gradient;
  if (weight_gradient) made.given = static_cast<int>(draw(0, 1));
  const bool given_output =
      made.op == Op::convolution_input_gradient || (weight_gradient && made.given == 0);
  if (given[1] < 1) return std::nullopt;
  const int64_t groups = DrawGroups(given[1], draw);
  const int64_t other = groups * draw(1, 3);  // channels of what is not given
  const int64_t in_channels = given_output ? other : given[1];
  const int64_t filters = given_output ? given[1] : other;
  Shape x = {given[0], in_channels}, y = {given[0], filters}, w = {filters, in_channels / groups};
  Shape stride, padding, dilation;
  int64_t taps = 1, windows = given[0];
  for (size_t d = 2; d < given.size(); ++d) {
    const std::optional<Line> l = DrawLine(given[d], given_output, draw);
    if (!l.has_value()) return std::nullopt;
    x.push_back(l->in), y.push_back(l->out), w.push_back(l->kernel);
    stride.push_back(l->stride), padding.push_back(l->padding), dilation.push_back(l->dilation);
    taps *= l->kernel, windows *= l->out;
  }
  made.attrs = {
      {"dilation", dilation}, {"groups", groups}, {"padding", padding}, {"stride", stride}};
  switch (made.op) {
    case Op::convolution_input_gradient:
      made.attrs.Set("input_shape", x);
      made.operands[0] = y, made.operands[1] = w, made.result = x;
      made.folded = filters / groups * taps;
      break;
    case Op::convolution_weight_gradient:
      made.attrs.Set("weight_shape", w);
      made.operands[0] = y, made.operands[1] = x, made.result = w;
      made.folded = windows;
      break;
    default:
      made.operands[0] = x, made.operands[1] = w, made.result = y;
      made.folded = in_channels / groups * taps;
  }
  return made;
}

}  // namespace retrograd
