// sort_indices: a list of indices -> the list in order, and where it came from.
#include <limits>

#include "absl/strings/str_cat.h"
#include "graph/base/status.h"
#include "graph/ir/library/library_rows.h"
#include "graph/ir/library/refusals.h"
#include "graph/ir/sorted_indices.h"

namespace retrograd {
namespace {

using Operands = LibraryOp::Operands;

constexpr AttrRule kAttrs[] = {{"rows", AttrKind::kInt}};

absl::StatusOr<std::vector<TensorType>> Infer(Operands operands, const Attrs& attrs) {
  const TensorType& index = *operands[0];
  if (index.dtype != DType::kInt32 && index.dtype != DType::kInt64) {
    return BadOperands(Malformation::kIndexDType, operands, "an index is int32 or int64");
  }
  if (index.rank() != 1) {
    return BadOperands(Malformation::kOperandShape, operands, "indices that are sorted are a list");
  }
  const SortedIndices sorted{.rows = attrs.Int("rows"), .indices = index.elements()};
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (sorted.rows < 0 || sorted.rows >= kMost || sorted.indices > kMost ||
      sorted.elements() > kMost) {
    return Malformed(Malformation::kAttrRange,
                     absl::StrCat("rows is ", sorted.rows, " for ", sorted.indices,
                                  " indices; their sorted list has int32 positions"));
  }
  return std::vector<TensorType>{{DType::kInt32, {sorted.elements()}}};
}

// The number of indices and the attribute make the result's extent.
LibraryDims Dims(Operands tensors, int) {
  LibraryDims dims;
  for (int tensor = 0; tensor < 2; ++tensor) {
    for (int d = 0; d < tensors[tensor]->rank(); ++d) dims.fixed.push_back({tensor, d});
  }
  return dims;
}

}  // namespace

const LibraryOp kSortIndicesOp = {
    .op = Op::sort_indices, .attrs = kAttrs, .infer = Infer, .dims = Dims};

}  // namespace retrograd
