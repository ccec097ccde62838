// The row of scatter_lines.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "fusion/kernel/ir/layout.h"
#include "fusion/ops/call_op.h"
#include "fusion/ops/scatter_lines/scatter_lines_call.h"

namespace retrograd {
namespace {

void Normalize(absl::Span<const int64_t> shape, std::vector<int64_t>& strides) {
  const std::vector<int64_t> dense = DenseStrides(shape);
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) strides[d] = dense[d];
  }
}

bool IsDense(absl::Span<const int64_t> shape, absl::Span<const int64_t> strides) {
  std::vector<int64_t> normal(strides.begin(), strides.end());
  Normalize(shape, normal);
  return Elements(shape) == 0 || normal == DenseStrides(shape);
}

std::string Describe(const Call& call) {
  const ScatterLinesCall c = ScatterLinesOf(call);
  return absl::StrCat("scatter_lines ", c.lines, "x", c.count, " into ", c.lines, "x", c.extent,
                      " ", Name(c.dtype),
                      c.index_lines < c.lines ? absl::StrCat(", indices of ", c.index_lines) : "");
}

}  // namespace

const CallOp kScatterLinesCalls = {
    .op = Op::scatter_lines,
    .name = "scatter",
    .reads = IsDense,
    .stores = IsDense,
    .normalize = Normalize,
    .result_like = [](int) { return -1; },
    .price = [](const Call& call, const DeviceSpec& d,
                bool explain) { return PriceOfScatterLines(ScatterLinesOf(call), d, explain); },
    .blocks =
        [](const Call& call) {
          return std::max<int64_t>(ScatterTeamsFor(ScatterLinesOf(call)).blocks, 1);
        },
    .describe = Describe,
    .sizes =
        [](const Call& call) {
          const ScatterLinesCall c = ScatterLinesOf(call);
          return CallSizes{{"lines", c.lines}, {"indices", c.count}, {"extent", c.extent}};
        }};

}  // namespace retrograd
