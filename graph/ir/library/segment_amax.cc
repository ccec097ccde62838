// segment_amax: the largest element of each group of neighbours along an axis, or the largest
// magnitude.
//   x [.., S, ..], ends [G] -> [.., G, ..]
#include "absl/strings/str_cat.h"
#include "graph/base/status.h"
#include "graph/ir/library/library_rows.h"
#include "graph/ir/library/refusals.h"
#include "graph/ir/shape_rules.h"

namespace retrograd {
namespace {

using Operands = LibraryOp::Operands;

constexpr AttrRule kAttrs[] = {{"axis", AttrKind::kInt}, {"magnitude", AttrKind::kFlag, false}};

absl::StatusOr<std::vector<TensorType>> Infer(Operands operands, const Attrs& attrs) {
  const TensorType &x = *operands[0], &ends = *operands[1];
  if (!IsFloat(x.dtype)) {
    return BadOperands(Malformation::kOperandDType, operands, "segment_amax takes floating values");
  }
  if (ends.dtype != DType::kInt32) {
    return BadOperands(Malformation::kOperandDType, operands, "the groups' ends are int32");
  }
  if (ends.rank() != 1) {
    return BadOperands(Malformation::kOperandShape, operands, "the groups' ends are a list");
  }
  const int64_t axis = attrs.Int("axis");
  if (axis < 0 || axis >= x.rank()) {
    return Malformed(Malformation::kAttrRange,
                     absl::StrCat("axis is ", axis, " of a tensor of rank ", x.rank()));
  }
  Shape shape = x.shape;
  shape[axis] = ends.shape[0];
  RG_RETURN_IF_ERROR(CheckShape(shape));
  return std::vector<TensorType>{{x.dtype, std::move(shape)}};
}

LibraryDims Dims(Operands tensors, int) {
  constexpr int kX = 0, kEnds = 1, kResult = 2;
  // The axis that the attribute names has no dim of the other like it.
  LibraryDims dims;
  for (int d = 0; d < tensors[kX]->rank(); ++d) {
    dims.fixed.push_back({kX, d});
    dims.fixed.push_back({kResult, d});
  }
  dims.fixed.push_back({kEnds, 0});
  return dims;
}

}  // namespace

const LibraryOp kSegmentAmaxOp = {
    .op = Op::segment_amax, .attrs = kAttrs, .infer = Infer, .dims = Dims};

}  // namespace retrograd
