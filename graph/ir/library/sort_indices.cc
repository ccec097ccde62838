// sort_indices: a list of indices -> the list in order, and where it came from.
#include "graph/ir/library/sort_indices.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "graph/base/status.h"
#include "graph/ir/library/library_rows.h"
#include "graph/ir/library/refusals.h"

namespace retrograd {
namespace {

using Operands = LibraryOp::Operands;

constexpr AttrRule kAttrs[] = {{"rows", AttrKind::kInt}};

absl::StatusOr<std::vector<TensorType>> Infer(Operands operands, const Attrs& attrs) {
  const TensorType& index = *operands[0];
  if (index.dtype != DType::kInt32 && index.dtype != DType::kInt64) {
    return BadOperands(Malformation::kIndexDType, operands, "an index is int32 or int64");
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
LibraryDims Dims(Operands tensors) {
  LibraryDims dims;
  for (int tensor = 0; tensor < 2; ++tensor) {
    for (int d = 0; d < tensors[tensor]->rank(); ++d) dims.fixed.push_back({tensor, d});
  }
  return dims;
}

}  // namespace

const LibraryOp kSortIndicesOp = {
    .op = Op::sort_indices, .attrs = kAttrs, .infer = Infer, .dims = Dims};

absl::Status CheckSorted(Op op, const Attrs& attrs, absl::Span<const Node* const> makers) {
  if (op != Op::segment_add) return absl::OkStatus();
  const Node &base = *makers[0], &sort = *makers[1];
  if (sort.op != Op::sort_indices) {
    return Malformed(Malformation::kSortedIndex,
                     absl::StrCat("operand 1 is a result of ", Name(sort.op)));
  }
  const int64_t rows = base.results[0].shape[attrs.Int("axis")];
  if (sort.attrs.Int("rows") == rows) return absl::OkStatus();
  return Malformed(Malformation::kSortedIndex,
                   absl::StrCat("indices into ", sort.attrs.Int("rows"),
                                " rows are sorted, the base has ", rows));
}

}  // namespace retrograd
