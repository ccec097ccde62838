#include "fusion/lower/indexed/axis_views.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace retrograd {

void AxisViews::Gather(int64_t axis, const IndexFactor& factor, const IndexLine& line) {
  for (size_t a = 0; a < line.at.size(); ++a) {
    const int64_t at = axis + static_cast<int64_t>(a);
    if (static_cast<int>(a) == line.axis) {
      Take(at, line.first, line.step, line.count);
    } else {
      Slice(at, line.at[a], line.at[a] + 1, 1);
    }
  }
  Merge(axis, static_cast<int64_t>(line.at.size()), {line.count});
  Spread(axis, line.stride);
  const int64_t length = std::min(line.count * line.stride, factor.rows - line.row);
  Slice(axis, 0, length, 1);
  Pad(axis, line.row, factor.rows - line.row - length);
}

void AxisViews::Take(int64_t axis, int64_t first, int64_t step, int64_t count) {
  const int64_t last = first + (count - 1) * step;
  Slice(axis, std::min(first, last), std::max(first, last) + 1, std::abs(step));
  if (step < 0) x_ = b_.Add(Op::flip, {{x_}}, {{"axes", std::vector<int64_t>{axis}}});
}

// Copies of what the windows cover, one behind the other, are rows of as many elements: each row
// that is longer by step[0] begins step[0] elements later in its copy.
void AxisViews::TakeWindows(int64_t axis, int64_t first, const std::array<int64_t, 2>& step,
                            const std::array<int64_t, 2>& count) {
  const int64_t length = (count[1] - 1) * step[1] + 1;
  const int64_t covered = (count[0] - 1) * step[0] + length;
  Slice(axis, first, first + covered, 1);
  Merge(axis, 1, {1, covered});
  Shape copies = shape();
  copies[axis] = count[0];
  x_ = b_.Expand(x_, std::move(copies));
  Merge(axis, 2, {count[0] * covered});
  Pad(axis, 0, count[0] * step[0]);
  Merge(axis, 1, {count[0], covered + step[0]});
  Slice(axis + 1, 0, length, step[1]);
}

void AxisViews::Slice(int64_t axis, int64_t start, int64_t stop, int64_t step) {
  x_ = b_.Slice(x_, axis, start, stop, step);
}

void AxisViews::Merge(int64_t axis, int64_t count, const std::vector<int64_t>& extents) {
  Shape merged(shape().begin(), shape().begin() + axis);
  merged.insert(merged.end(), extents.begin(), extents.end());
  merged.insert(merged.end(), shape().begin() + axis + count, shape().end());
  x_ = b_.Reshape(x_, std::move(merged));
}

void AxisViews::Spread(int64_t axis, int64_t stride) {
  if (stride == 1) return;
  const int64_t extent = shape()[axis];
  Merge(axis, 1, {extent, 1});
  Pad(axis + 1, 0, stride - 1);
  Merge(axis, 2, {extent * stride});
}

void AxisViews::Pad(int64_t axis, int64_t before, int64_t behind) {
  if (before == 0 && behind == 0) return;
  std::vector<int64_t> low(shape().size()), high(shape().size());
  low[axis] = before;
  high[axis] = behind;
  x_ = b_.Add(Op::pad, {{x_}}, {{"high", high}, {"low", low}, {"value", 0.0}});
}

}  // namespace retrograd
