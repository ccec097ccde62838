#include "fusion/ops/segment_amax/segment_amax_call.h"

#include <algorithm>

#include "graph/base/status.h"

namespace retrograd {
namespace {

// Of the axes before the grouped one, of itself, and of those behind it. More than two axes are
// dense, so that a merged one has the stride of its last.
struct AxisStrides {
  int64_t before = 0, along = 0, behind = 1;
};

AxisStrides StridesOf(const CallTensor& t, size_t axis) {
  AxisStrides s{.along = t.strides[axis]};
  if (axis > 0) s.before = t.strides[axis - 1];
  if (axis + 1 < t.strides.size()) s.behind = t.strides.back();
  return s;
}

SegmentStrides Arranged(const CallTensor& t, size_t axis, bool lanes_behind) {
  const AxisStrides s = StridesOf(t, axis);
  return {.offset = t.offset,
          .batch = lanes_behind ? s.before : 0,
          .along = s.along,
          .across = lanes_behind ? s.behind : s.before};
}

}  // namespace

SegmentAmaxCall SegmentAmaxOf(const Call& call) {
  RG_CHECK(call.op == Op::segment_amax && call.operands.size() == 2 && call.results.size() == 1);
  const CallTensor &x = call.operands[0], &ends = call.operands[1];
  const auto axis = static_cast<size_t>(call.attributes.Int("axis"));
  int64_t before = 1, behind = 1;
  for (size_t d = 0; d < axis; ++d) before *= x.shape[d];
  for (size_t d = axis + 1; d < x.shape.size(); ++d) behind *= x.shape[d];
  const bool lanes_behind = behind > 1;
  return {.batch = lanes_behind ? before : 1,
          .places = x.shape[axis],
          .lanes = lanes_behind ? behind : before,
          .groups = ends.shape[0],
          .magnitude = call.attributes.Int("magnitude") != 0,
          .dtype = x.dtype,
          .x = Arranged(x, axis, lanes_behind),
          .result = Arranged(call.results[0], axis, lanes_behind),
          .ends_offset = ends.offset};
}

bool HasSegmentStrides(absl::Span<const int64_t> shape, absl::Span<const int64_t> strides) {
  std::vector<int64_t> normal(strides.begin(), strides.end());
  NormalizeSegment(shape, normal);
  const bool positive = std::all_of(normal.begin(), normal.end(), [](int64_t s) { return s >= 0; });
  if (shape.size() == 2) return positive && (normal[0] == 1 || normal[1] == 1);
  return Elements(shape) == 0 || normal == DenseStrides(shape);
}

void NormalizeSegment(absl::Span<const int64_t> shape, std::vector<int64_t>& strides) {
  const std::vector<int64_t> dense = DenseStrides(shape);
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) strides[d] = dense[d];
  }
}

}  // namespace retrograd
