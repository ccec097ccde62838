// scatter_lines of the reference evaluator, also over magnitudes.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "graph/reference/library_reference.h"

namespace retrograd {

absl::Status EvaluateScatterLines(const LibraryNode& node, absl::Span<double* const> out) {
  const DenseTensor &index = node.exact[0], &src = node.operands[1];
  const int64_t extent = node.attrs.Int("extent"), count = src.type->shape.back();
  const int64_t indices = index.type->elements(), elements = src.type->elements();
  const int64_t lines = count > 0 ? elements / count : 0;
  std::fill(out[0], out[0] + node.results[0].elements(), 0.0);
  for (int64_t line = 0; line < lines; ++line) {
    for (int64_t k = 0; k < count; ++k) {
      auto at = static_cast<int64_t>(index.data[(line * count + k) % indices]);
      if (at < 0) at += extent;
      if (at < 0 || at >= extent) {
        return absl::OutOfRangeError(absl::StrCat(
            "index ", index.data[(line * count + k) % indices], " in a line of ", extent));
      }
      out[0][line * extent + at] += src.data[line * count + k];
    }
  }
  return absl::OkStatus();
}

}  // namespace retrograd
