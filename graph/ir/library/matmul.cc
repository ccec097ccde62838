// matmul: [batch.., M, K] x [batch.., K, N] -> [batch.., M, N].
#include <algorithm>

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
  const TensorType& a = *operands[0];
  const TensorType& b = *operands[1];
  if (a.dtype != b.dtype || !IsFloat(a.dtype)) {
    return BadOperands(Malformation::kOperandDType, operands,
                       "matmul takes two of one floating dtype");
  }
  const auto misfit = [&](absl::string_view rule) {
    return BadOperands(Malformation::kMatmulShape, operands, rule);
  };
  const int rank = a.rank();
  if (rank < 2 || b.rank() != rank) return misfit("both need one rank of at least 2");
  if (!std::equal(a.shape.begin(), a.shape.end() - 2, b.shape.begin())) {
    return misfit("batch dims differ; expand them first");
  }
  if (a.shape[rank - 1] != b.shape[rank - 2]) {
    return misfit(absl::StrCat(a.shape[rank - 1], " columns meet ", b.shape[rank - 2],
                               " rows; is a permute missing?"));
  }
  RG_ASSIGN_OR_RETURN(const DType dtype, ResultDType(attrs, a.dtype));
  if (IsFp8(dtype)) return BadOperands(Malformation::kOperandDType, operands, kSumsAreWide);
  Shape shape = a.shape;
  shape.back() = b.shape.back();
  RG_RETURN_IF_ERROR(CheckShape(shape));
  return std::vector<TensorType>{{dtype, std::move(shape)}};
}

LibraryDims Dims(Operands tensors, int) {
  constexpr int kA = 0, kB = 1, kResult = 2;
  const int rank = tensors[kResult]->rank();
  LibraryDims dims;
  for (int d = 0; d + 2 < rank; ++d) {
    dims.equal.push_back({{kA, d}, {kResult, d}});
    dims.equal.push_back({{kB, d}, {kResult, d}});
  }
  dims.equal.push_back({{kA, rank - 2}, {kResult, rank - 2}});
  dims.equal.push_back({{kB, rank - 1}, {kResult, rank - 1}});
  dims.equal.push_back({{kA, rank - 1}, {kB, rank - 2}});
  return dims;
}

}  // namespace

const LibraryOp kMatMulOp = {
    .op = Op::matmul, .attrs = kAttrs, .infer = Infer, .dims = Dims, .zero_of_empty = true};

}  // namespace retrograd
