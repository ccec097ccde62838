// grouped_matmul: a matmul for each group of neighbouring rows, or of neighbouring terms of the
// sum.
//   rows in groups   a [S, K], b [G, K, N], ends [G] -> [S, N]
//   sums in groups   a [M, S], b [S, N],    ends [G] -> [G, M, N]
// With scales, of rows [S], of sums [G, M], and of columns [G, N], behind them; or with scales of
// blocks of both operands (BlockScales).
#include "absl/strings/str_cat.h"
#include "graph/base/status.h"
#include "graph/ir/library/library_rows.h"
#include "graph/ir/library/refusals.h"
#include "graph/ir/shape_rules.h"

namespace retrograd {
namespace {

using Operands = LibraryOp::Operands;

constexpr AttrRule kAttrs[] = {{"dtype", AttrKind::kDType, false},
                               {"scale_block", AttrKind::kInt, false}};
// Scales of blocks of b have an axis of groups, of one where it has one matrix for all.
constexpr int kBlocksRank = 3;
// Of so many terms kernels add up at once.
constexpr int64_t kLeastTerms = 16;

int64_t Blocks(int64_t extent, int64_t block) { return extent / block + (extent % block != 0); }

// Scales of blocks of `block` terms: of a [M or M / block, K / block], of b [G, K / block, N or
// N / block], with one group where b is a matrix. Quotients are rounded up.
absl::Status CheckBlockScales(Operands operands, int64_t block) {
  const TensorType &a = *operands[0], &b = *operands[1], &rows = *operands[3],
                   &columns = *operands[4];
  if (block < kLeastTerms || block % kLeastTerms != 0) {
    return Malformed(Malformation::kAttrRange,
                     absl::StrCat("scale_block is ", block, ", no multiple of ", kLeastTerms));
  }
  const int64_t terms = Blocks(a.shape[1], block), m = a.shape[0], n = b.shape.back();
  const int64_t groups = b.rank() == 3 ? b.shape[0] : 1;
  const auto counts = [&](int64_t scales, int64_t lines) {
    return scales == lines || scales == Blocks(lines, block);
  };
  const bool fits = rows.rank() == 2 && rows.shape[1] == terms && counts(rows.shape[0], m) &&
                    columns.rank() == kBlocksRank && columns.shape[0] == groups &&
                    columns.shape[1] == terms && counts(columns.shape[2], n);
  if (fits) return absl::OkStatus();
  return BadOperands(
      Malformation::kGroupedMatMulShape, operands,
      absl::StrCat("scales of blocks of ", block, " terms are [", m, " or ", Blocks(m, block), ", ",
                   terms, "] and [", groups, ", ", terms, ", ", n, " or ", Blocks(n, block), "]"));
}

absl::Status CheckScaleTypes(Operands operands, DType result) {
  if (operands.size() != 5) {
    return BadOperands(Malformation::kOperandCount, operands,
                       "there are scales of the rows and of the columns, or none");
  }
  const DType scale = ComputeType(result) == DType::kFp64 ? DType::kFp64 : DType::kFp32;
  if (operands[3]->dtype != scale || operands[4]->dtype != scale) {
    return BadOperands(
        Malformation::kOperandDType, operands,
        absl::StrCat("the scales of a result of ", Name(result), " are ", Name(scale)));
  }
  return absl::OkStatus();
}

absl::Status CheckScales(Operands operands, const Shape& rows, const Shape& columns) {
  if (operands[3]->shape != rows || operands[4]->shape != columns) {
    return BadOperands(Malformation::kGroupedMatMulShape, operands,
                       absl::StrCat("the scales are ", PrintInts(rows), " of the rows and ",
                                    PrintInts(columns), " of the columns"));
  }
  return absl::OkStatus();
}

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
  const int64_t groups = ends.shape[0];
  if (rows && b.shape[0] != groups) {
    return misfit(absl::StrCat(b.shape[0], " matrices meet ", groups, " groups"));
  }
  const int64_t meets = b.shape[b.rank() - 2];
  if (a.shape[1] != meets) {
    return misfit(
        absl::StrCat(a.shape[1], " columns meet ", meets, " rows; is a permute missing?"));
  }
  RG_ASSIGN_OR_RETURN(const DType dtype, ResultDType(attrs, a.dtype));
  if (IsFp8(dtype)) return BadOperands(Malformation::kOperandDType, operands, kSumsAreWide);
  Shape shape = {a.shape[0], b.shape.back()};
  if (!rows) shape.insert(shape.begin(), groups);
  RG_RETURN_IF_ERROR(CheckShape(shape));
  const bool of_blocks = attrs.Find("scale_block") != nullptr;
  if (operands.size() > 3) RG_RETURN_IF_ERROR(CheckScaleTypes(operands, dtype));
  if (of_blocks && operands.size() == 3) {
    return BadOperands(Malformation::kOperandCount, operands, "scales of blocks are operands");
  }
  if (of_blocks) {
    RG_RETURN_IF_ERROR(CheckBlockScales(operands, attrs.Int("scale_block")));
  } else if (operands.size() > 3) {
    RG_RETURN_IF_ERROR(CheckScales(operands, rows ? Shape{a.shape[0]} : Shape{groups, a.shape[0]},
                                   {groups, b.shape.back()}));
  }
  return std::vector<TensorType>{{dtype, std::move(shape)}};
}

LibraryDims Dims(Operands tensors, int operands) {
  constexpr int kA = 0, kB = 1, kEnds = 2, kRowScales = 3, kColumnScales = 4;
  const bool scaled = operands > 3;
  const int result = operands;
  LibraryDims dims;
  if (tensors[kB]->rank() == 3) {
    dims.equal = {
        {{kA, 0}, {result, 0}}, {{kA, 1}, {kB, 1}}, {{kB, 2}, {result, 1}}, {{kB, 0}, {kEnds, 0}}};
  } else {
    dims.equal = {{{kA, 1}, {kB, 0}},
                  {{kA, 0}, {result, 1}},
                  {{kB, 1}, {result, 2}},
                  {{kEnds, 0}, {result, 0}}};
  }
  if (scaled && tensors[kColumnScales]->rank() == kBlocksRank) {
    // Blocks are parts of both operands.
    for (int t : {kA, kB, kRowScales, kColumnScales, result}) {
      for (int d = 0; d < tensors[t]->rank(); ++d) dims.fixed.push_back({t, d});
    }
  } else if (scaled) {
    const bool rows = tensors[kB]->rank() == 3;
    if (!rows) dims.equal.push_back({{kRowScales, 0}, {kEnds, 0}});
    dims.equal.push_back({{kRowScales, rows ? 0 : 1}, {kA, 0}});
    dims.equal.push_back({{kColumnScales, 0}, {kEnds, 0}});
    dims.equal.push_back({{kColumnScales, 1}, {kB, rows ? 2 : 1}});
  }
  return dims;
}

}  // namespace

const LibraryOp kGroupedMatMulOp = {
    .op = Op::grouped_matmul, .attrs = kAttrs, .infer = Infer, .dims = Dims, .zero_of_empty = true};

}  // namespace retrograd
