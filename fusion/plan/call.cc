#include "fusion/plan/call.h"

namespace retrograd {

int64_t SpanOf(const CallTensor& tensor) {
  int64_t last = tensor.offset;
  for (size_t axis = 0; axis < tensor.shape.size(); ++axis) {
    if (tensor.shape[axis] == 0) return 0;
    last += (tensor.shape[axis] - 1) * tensor.strides[axis];
  }
  return last + 1;
}

}  // namespace retrograd
