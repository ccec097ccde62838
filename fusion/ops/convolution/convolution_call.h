// A convolution's call, or one of its gradients', with its geometry.
#ifndef RETROGRAD_FUSION_OPS_CONVOLUTION_CONVOLUTION_CALL_H_
#define RETROGRAD_FUSION_OPS_CONVOLUTION_CONVOLUTION_CALL_H_

#include <array>

#include "fusion/plan/call.h"
#include "graph/ir/library/convolution.h"

namespace retrograd {

// Three spatial dims: those that the convolution has not stand first, with an extent of 1.
inline constexpr int kSpatialDims = 3;
using SpatialExtents = std::array<int64_t, kSpatialDims>;

// A tensor of five dims inside a stored value: two and the spatial ones.
struct ConvolutionTensor {
  int64_t offset = 0;                                      // elements
  std::array<int64_t, 2 + kSpatialDims> shape, strides{};  // elements
  DType dtype = DType::kFp32;
};

struct ConvolutionCall {
  Op op{};
  ConvolutionGeometry geometry;
  SpatialExtents in, kernel, out, stride, padding, dilation;
  // Of x * w = y: which of them are operands and which is the result says the op.
  ConvolutionTensor x, w, y;
  bool tf32 = false;  // as of a Call

  int64_t in_channels_of_group() const { return geometry.in_channels / geometry.groups; }
  int64_t out_channels_of_group() const { return geometry.out_channels / geometry.groups; }
};

// Of a call of convolution, convolution_input_gradient or convolution_weight_gradient.
ConvolutionCall ConvolutionOf(const Call& call);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_OPS_CONVOLUTION_CONVOLUTION_CALL_H_
