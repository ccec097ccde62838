#include "fusion/ops/convolution/convolution_call.h"

#include <algorithm>

#include "graph/base/status.h"

namespace retrograd {
namespace {

SpatialExtents Lifted(absl::Span<const int64_t> list, int64_t fill) {
  SpatialExtents lifted;
  lifted.fill(fill);
  std::copy(list.begin(), list.end(), lifted.end() - static_cast<std::ptrdiff_t>(list.size()));
  return lifted;
}

ConvolutionTensor TensorOf(const CallTensor& t) {
  ConvolutionTensor tensor{.offset = t.offset, .dtype = t.dtype};
  tensor.shape.fill(1);
  const size_t missing = tensor.shape.size() - t.shape.size();
  for (size_t i = 0; i < t.shape.size(); ++i) {
    const size_t to = i < 2 ? i : i + missing;
    tensor.shape[to] = t.shape[i];
    tensor.strides[to] = t.shape[i] == 1 ? 0 : t.strides[i];
  }
  return tensor;
}

}  // namespace

ConvolutionCall ConvolutionOf(const Call& call) {
  RG_CHECK(call.operands.size() == 2 && call.results.size() == 1);
  const TensorType first{call.operands[0].dtype, call.operands[0].shape};
  const TensorType second{call.operands[1].dtype, call.operands[1].shape};
  const TensorType* const operands[] = {&first, &second};
  // The graph has been verified.
  absl::StatusOr<ConvolutionGeometry> geometry =
      ConvolutionGeometryOf(call.op, operands, call.attributes);
  RG_CHECK(geometry.ok());
  ConvolutionCall made{.op = call.op, .geometry = *std::move(geometry)};
  made.tf32 = call.tf32;
  made.in = Lifted(made.geometry.in, 1);
  made.kernel = Lifted(made.geometry.kernel, 1);
  made.out = Lifted(made.geometry.out, 1);
  made.stride = Lifted(made.geometry.stride, 1);
  made.padding = Lifted(made.geometry.padding, 0);
  made.dilation = Lifted(made.geometry.dilation, 1);
  const ConvolutionTensor a = TensorOf(call.operands[0]), b = TensorOf(call.operands[1]),
                          c = TensorOf(call.results[0]);
  switch (call.op) {
    case Op::convolution_input_gradient: made.y = a, made.w = b, made.x = c; break;
    case Op::convolution_weight_gradient: made.y = a, made.x = b, made.w = c; break;
    default: made.x = a, made.w = b, made.y = c;
  }
  return made;
}

}  // namespace retrograd
