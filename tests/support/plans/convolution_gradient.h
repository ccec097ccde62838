// Calls for the gradients of convolutions.
#ifndef RETROGRAD_TESTS_SUPPORT_PLANS_CONVOLUTION_GRADIENT_H_
#define RETROGRAD_TESTS_SUPPORT_PLANS_CONVOLUTION_GRADIENT_H_

#include <cstdint>
#include <vector>

#include "fusion/ops/convolution/packed_layout.h"
#include "fusion/plan/plan.h"

namespace retrograd {

struct ConvolutionSizes {
  int64_t batch = 2, channels = 64, extent = 28, filters = 64, taps = 3, stride = 1, groups = 1;
};

// Of square images and filters, channels last, padded so that a stride of 1 keeps the extent.
inline Call ConvolutionGradient(Op op, const ConvolutionSizes& s, DType dtype = DType::kBf16) {
  const int64_t padding = (s.taps - 1) / 2;
  const int64_t out = (s.extent + 2 * padding - s.taps) / s.stride + 1;
  const Shape x = {s.batch, s.channels, s.extent, s.extent};
  const Shape w = {s.filters, s.channels / s.groups, s.taps, s.taps};
  const Shape y = {s.batch, s.filters, out, out};
  Call call{.op = op};
  call.attributes = {{"stride", Shape{s.stride, s.stride}},
                     {"padding", Shape{padding, padding}},
                     {"dilation", Shape{1, 1}},
                     {"groups", s.groups}};
  const bool input = op == Op::convolution_input_gradient;
  input ? call.attributes.Set("input_shape", x) : call.attributes.Set("weight_shape", w);
  const auto tensor = [&](const Shape& shape) {
    return CallTensor{.shape = shape, .strides = ChannelsLastStrides(shape), .dtype = dtype};
  };
  call.operands = {tensor(y), tensor(input ? w : x)};
  call.results = {tensor(input ? x : w)};
  return call;
}

// The same call with all of its tensors row-major.
inline Call RowMajor(Call call) {
  for (std::vector<CallTensor>* tensors : {&call.operands, &call.results}) {
    for (CallTensor& t : *tensors) t.strides = DenseStrides(t.shape);
  }
  return call;
}

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_PLANS_CONVOLUTION_GRADIENT_H_
