#include "fusion/ops/convolution/packed_layout.h"

#include <algorithm>
#include <cstddef>

namespace retrograd {
namespace {

// The dims from the innermost on.
std::vector<size_t> ChannelsLastOrder(size_t rank) {
  std::vector<size_t> dims = {1};
  for (size_t d = rank; d-- > 2;) dims.push_back(d);
  dims.push_back(0);
  return dims;
}

std::vector<size_t> RowMajorOrder(size_t rank) {
  std::vector<size_t> dims;
  for (size_t d = rank; d-- > 0;) dims.push_back(d);
  return dims;
}

bool LiesInOrder(absl::Span<const int64_t> shape, absl::Span<const int64_t> strides,
                 const std::vector<size_t>& order) {
  int64_t span = 1;
  return std::all_of(order.begin(), order.end(), [&](size_t d) {
    const bool fits = shape[d] == 1 || strides[d] == span;
    span *= shape[d];
    return fits;
  });
}

}  // namespace

bool IsRowMajor(absl::Span<const int64_t> shape, absl::Span<const int64_t> strides) {
  return LiesInOrder(shape, strides, RowMajorOrder(shape.size()));
}

bool IsPacked(absl::Span<const int64_t> shape, absl::Span<const int64_t> strides) {
  return IsRowMajor(shape, strides) || LiesInOrder(shape, strides, ChannelsLastOrder(shape.size()));
}

std::vector<int64_t> ChannelsLastStrides(absl::Span<const int64_t> shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t span = 1;
  for (const size_t d : ChannelsLastOrder(shape.size())) {
    strides[d] = span;
    span *= shape[d];
  }
  return strides;
}

}  // namespace retrograd
