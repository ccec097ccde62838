// grouped_matmul: a matmul for each group of neighbouring rows, or of neighbouring terms of the
// sum.
//   rows in groups   a [S, K], b [G, K, N], ends [G] -> [S, N]
//   sums in groups   a [M, S], b [S, N],    ends [G] -> [G, M, N]
#include "absl/strings/str_cat.h"
#include "graph/base/status.h"
#include "graph/ir/library/library_rows.h"
#include "graph/ir/library/refusals.h"
#include "graph/ir/shape_rules.h"

namespace retrograd {
namespace {

using Operands = LibraryOp::Operands;

constexpr AttrRule kAttrs[] = {{"dtype", AttrKind::kDType, false}};

absl::StatusOr<std::vector<TensorType>> Infer(Operands operands, const Attrs& attrs) {
  const TensorType &a = *operands[0], &b = *operands[1], &ends = *operands[2];
  if (a.dtype != b.dtype || !IsFloat(a.dtype)) {
    return BadOperands(Malformation::kOperandDType, operands,
                       "grouped_matmul takes two of one floating dtype");
  }
  if (ends.dtype != DType::kInt32) {
    return BadOperands(Malformation::kOperandDType, operands, "the groups' ends are int32");
  }
  const auto misfit = [&](absl::string_view rule) {
    return BadOperands(Malformation::kGroupedMatMulShape, operands, rule);
  };
  if (a.rank() != 2) return misfit("the first is a matrix");
  if (b.rank() != 2 && b.rank() != 3) {
    return misfit("the second is a matrix, or one for each group");
  }
  if (ends.rank() != 1) return misfit("the groups' ends are a list");
  const bool rows = b.rank() == 3;
  if (rows && b.shape[0] != ends.shape[0]) {
    return misfit(absl::StrCat(b.shape[0], " matrices meet ", ends.shape[0], " groups"));
  }
  const int64_t meets = b.shape[b.rank() - 2];
  if (a.shape[1] != meets) {
    return misfit(
        absl::StrCat(a.shape[1], " columns meet ", meets, " rows; is a permute missing?"));
  }
  RG_ASSIGN_OR_RETURN(const DType dtype, ResultDType(attrs, a.dtype));
  Shape shape = {a.shape[0], b.shape.back()};
  if (!rows) shape.insert(shape.begin(), ends.shape[0]);
  RG_RETURN_IF_ERROR(CheckShape(shape));
  return std::vector<TensorType>{{dtype, std::move(shape)}};
}

LibraryDims Dims(Operands tensors) {
  constexpr int kA = 0, kB = 1, kEnds = 2, kResult = 3;
  LibraryDims dims;
  if (tensors[kB]->rank() == 3) {
    dims.equal = {{{kA, 0}, {kResult, 0}},
                  {{kA, 1}, {kB, 1}},
                  {{kB, 2}, {kResult, 1}},
                  {{kB, 0}, {kEnds, 0}}};
  } else {
    dims.equal = {{{kA, 1}, {kB, 0}},
                  {{kA, 0}, {kResult, 1}},
                  {{kB, 1}, {kResult, 2}},
                  {{kEnds, 0}, {kResult, 0}}};
  }
  return dims;
}

}  // namespace

const LibraryOp kGroupedMatMulOp = {
    .op = Op::grouped_matmul, .attrs = kAttrs, .infer = Infer, .dims = Dims, .zero_of_empty = true};

}  // namespace retrograd
