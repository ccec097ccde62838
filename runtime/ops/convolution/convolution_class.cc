#include "runtime/ops/convolution/convolution_class.h"

#include <cstdint>
#include <vector>

#include "fusion/ops/convolution/convolution_call.h"
#include "runtime/tuning/extent_class.h"

namespace retrograd {
namespace {

constexpr absl::string_view kInputShape = "input_shape";

}  // namespace

Call ConvolutionRepresentativeOf(const Call& call) {
  const int64_t images = CountOfClass(ConvolutionOf(call).geometry.batch);
  Call made = call;
  // Images are outermost in both orders in which a convolution takes tensors.
  if (call.op != Op::convolution_weight_gradient) {
    made.operands[0].shape[0] = images;
    made.results[0].shape[0] = images;
  } else {
    for (CallTensor& operand : made.operands) operand.shape[0] = images;
  }
  if (call.op == Op::convolution_input_gradient) {
    const absl::Span<const int64_t> shape = call.attributes.Ints(kInputShape);
    std::vector<int64_t> of_class(shape.begin(), shape.end());
    of_class[0] = images;
    made.attributes.Set(kInputShape, std::move(of_class));
  }
  return made;
}

}  // namespace retrograd
