// scatter_lines: sums at indices along the last axis, each line by itself.
//   index [.., n], src [.., n] -> [.., extent]
#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "graph/base/status.h"
#include "graph/ir/library/library_rows.h"
#include "graph/ir/library/refusals.h"
#include "graph/ir/shape_rules.h"

namespace retrograd {
namespace {

using Operands = LibraryOp::Operands;

constexpr AttrRule kAttrs[] = {{"extent", AttrKind::kInt}};

absl::StatusOr<std::vector<TensorType>> Infer(Operands operands, const Attrs& attrs) {
  const TensorType &index = *operands[0], &src = *operands[1];
  if (index.dtype != DType::kInt32 && index.dtype != DType::kInt64) {
    return BadOperands(Malformation::kIndexDType, operands, "an index is int32 or int64");
  }
  if (!IsFloat(src.dtype)) {
    return BadOperands(Malformation::kOperandDType, operands,
                       "scatter_lines adds floating values up");
  }
  const bool same = index.rank() >= 1 && index.rank() <= src.rank() &&
                    std::equal(index.shape.rbegin(), index.shape.rend(), src.shape.rbegin());
  if (!same) {
    return BadOperands(Malformation::kOperandShape, operands,
                       "the index has the last axes of the source, one at least");
  }
  const int64_t extent = attrs.Int("extent");
  if (extent < 0 || extent > std::numeric_limits<int32_t>::max()) {
    return Malformed(Malformation::kAttrRange,
                     absl::StrCat("extent is ", extent, "; lines have 0 to 2^31 - 1 elements"));
  }
  Shape shape = src.shape;
  shape.back() = extent;
  RG_RETURN_IF_ERROR(CheckShape(shape));
  return std::vector<TensorType>{{src.dtype, std::move(shape)}};
}

// The index's axes are the last of the source's, and the result has the first of these.
LibraryDims Dims(Operands tensors, int) {
  constexpr int kIndex = 0, kSrc = 1, kResult = 2;
  const int rank = tensors[kSrc]->rank(), missing = rank - tensors[kIndex]->rank();
  LibraryDims dims;
  for (int d = 0; d < rank; ++d) {
    if (d >= missing) dims.equal.push_back({{kSrc, d}, {kIndex, d - missing}});
    if (d + 1 < rank) dims.equal.push_back({{kSrc, d}, {kResult, d}});
  }
  dims.fixed.push_back({kResult, rank - 1});
  return dims;
}

}  // namespace

const LibraryOp kScatterLinesOp = {
    .op = Op::scatter_lines, .attrs = kAttrs, .infer = Infer, .dims = Dims};

}  // namespace retrograd
