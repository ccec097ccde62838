// Views of axes: runs of them, and views that put places of a source where a line of an index says
// (index_lines.h).
#ifndef RETROGRAD_FUSION_LOWER_INDEXED_AXIS_VIEWS_H_
#define RETROGRAD_FUSION_LOWER_INDEXED_AXIS_VIEWS_H_

#include <array>
#include <cstdint>
#include <vector>

#include "fusion/lower/indexed/index_lines.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// Views of one axis, or some, of a tensor.
class AxisViews {
 public:
  AxisViews(GraphBuilder& builder, ValueId x) : b_(builder), x_(x) {}

  ValueId value() const { return x_; }

  // The line's places, `axis` being the first of the factor's; one axis of the factor's rows.
  void Gather(int64_t axis, const IndexFactor& factor, const IndexLine& line);

  // The elements first + i * step of the axis, 0 <= i < count.
  void Take(int64_t axis, int64_t first, int64_t step, int64_t count);
  // Windows as two axes in place of one: element [i, j] is first + i * step[0] + j * step[1] of the
  // axis, 0 <= i < count[0], 0 <= j < count[1]. Both steps are positive.
  void TakeWindows(int64_t axis, int64_t first, const std::array<int64_t, 2>& step,
                   const std::array<int64_t, 2>& count);
  // `count` axes as axes of other extents.
  void Merge(int64_t axis, int64_t count, const std::vector<int64_t>& extents);

 private:
  const Shape& shape() const { return b_.type(x_).shape; }
  void Slice(int64_t axis, int64_t start, int64_t stop, int64_t step);
  // stride - 1 zeros behind each element.
  void Spread(int64_t axis, int64_t stride);
  void Pad(int64_t axis, int64_t before, int64_t behind);

  GraphBuilder& b_;
  ValueId x_;
};

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_LOWER_INDEXED_AXIS_VIEWS_H_
