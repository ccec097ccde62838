// segment_amax of the reference evaluator, also over magnitudes.
#include <algorithm>
#include <cmath>
#include <limits>

#include "graph/ir/group_ends.h"
#include "graph/reference/library_reference.h"

namespace retrograd {

absl::Status EvaluateSegmentAmax(const LibraryNode& node, absl::Span<double* const> out) {
  const DenseTensor &x = node.operands[0], &ends = node.exact[1];
  const Shape& shape = x.type->shape;
  const auto axis = static_cast<int>(node.attrs.Int("axis"));
  const int64_t size = shape[axis], groups = ends.type->elements();
  int64_t outer = 1, inner = 1;
  for (int d = 0; d < axis; ++d) outer *= shape[d];
  for (int d = axis + 1; d < x.type->rank(); ++d) inner *= shape[d];
  const bool magnitude = node.magnitudes || node.attrs.Int("magnitude") != 0;
  std::fill(out[0], out[0] + outer * groups * inner,
            magnitude ? 0 : -std::numeric_limits<double>::infinity());
  GroupSpan group;
  for (int64_t g = 0; g < groups; ++g) {
    group = NextGroup(group, static_cast<int64_t>(ends.data[g]), size);
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t s = group.begin; s < group.end; ++s) {
        for (int64_t i = 0; i < inner; ++i) {
          double& most = out[0][(o * groups + g) * inner + i];
          const double element = x.data[(o * size + s) * inner + i];
          const double v = magnitude ? std::fabs(element) : element;
          if (v > most || v != v) most = v;
        }
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace retrograd
