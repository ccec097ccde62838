#include "graph/ir/library_ops.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/base/malformations.h"
#include "graph/base/status.h"
#include "graph/ir/shape_rules.h"

namespace retrograd {
namespace {

using Operands = absl::Span<const TensorType* const>;

std::string Print(absl::Span<const int64_t> list) {
  return absl::StrCat("[", absl::StrJoin(list, ","), "]");
}

std::string PrintOperands(Operands operands) {
  return absl::StrJoin(operands, ", ", [](std::string* out, const TensorType* type) {
    absl::StrAppend(out, type->Print());
  });
}

absl::Status BadDType(Operands operands, absl::string_view rule) {
  return Malformed(Malformation::kOperandDType,
                   absl::StrCat("operands ", PrintOperands(operands), ": ", rule));
}

bool SameDType(Operands operands) {
  return std::all_of(operands.begin(), operands.end(),
                     [&](const TensorType* type) { return type->dtype == operands[0]->dtype; });
}

absl::StatusOr<std::vector<TensorType>> InferMatMul(Operands operands, const Attrs& attrs) {
  const TensorType& a = *operands[0];
  const TensorType& b = *operands[1];
  if (a.dtype != b.dtype || !IsFloat(a.dtype)) {
    return BadDType(operands, "matmul takes two of one floating dtype");
  }
  const auto misfit = [&](absl::string_view rule) {
    return Malformed(Malformation::kMatmulShape,
                     absl::StrCat("operands ", PrintOperands(operands), ": ", rule));
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
  DType dtype = a.dtype;
  if (attrs.Find("dtype") != nullptr) dtype = *DTypeByName(attrs.String("dtype"));
  if (!IsFloat(dtype)) {
    return Malformed(Malformation::kAttrRange,
                     absl::StrCat("attribute dtype is ", Name(dtype), "; it has to be floating"));
  }
  Shape shape = a.shape;
  shape.back() = b.shape.back();
  RG_RETURN_IF_ERROR(CheckShape(shape));
  return std::vector<TensorType>{{dtype, std::move(shape)}};
}

// Six operands, then a bias or none, then with dropout_p > 0 the random generator's seed and
// offset, which are integers.
absl::StatusOr<std::vector<TensorType>> InferAttention(Operands operands, const Attrs& attrs) {
  const TensorType &d_o = *operands[0], &q = *operands[1], &k = *operands[2], &v = *operands[3],
                   &o = *operands[4], &lse = *operands[5];
  if (!SameDType(operands.subspan(0, 5)) || !IsFloat(q.dtype)) {
    return BadDType(operands, "dO, Q, K, V and O share one floating dtype");
  }
  if (lse.dtype != DType::kFp32 && lse.dtype != DType::kFp64) {
    return BadDType(operands, "the log-sum-exp is f32 or f64");
  }
  const auto misfit = [&](absl::string_view rule) {
    return Malformed(Malformation::kAttentionShape,
                     absl::StrCat("operands ", PrintOperands(operands), ": ", rule));
  };
  for (const TensorType* type : operands.subspan(0, 5)) {
    if (type->rank() != 4) return misfit("dO, Q, K, V and O have 4 dims [B,H,T,D]");
  }
  const int64_t batch = q.shape[0], heads = q.shape[1], queries = q.shape[2];
  const int64_t kv_heads = k.shape[1], keys = k.shape[2];
  if (k.shape[0] != batch || k.shape[3] != q.shape[3]) return misfit("Q and K do not fit");
  if (v.shape[0] != batch || v.shape[1] != kv_heads || v.shape[2] != keys) {
    return misfit("K and V do not fit");
  }
  if (kv_heads == 0 || heads % kv_heads != 0) {
    return misfit(absl::StrCat(heads, " query heads are no multiple of ", kv_heads, " key heads"));
  }
  const Shape out = {batch, heads, queries, v.shape[3]};
  if (o.shape != out || d_o.shape != out) {
    return misfit(absl::StrCat("O and dO need the shape ", Print(out)));
  }
  if (lse.shape != Shape{batch, heads, queries}) {
    return misfit(
        absl::StrCat("the log-sum-exp needs the shape [", batch, ",", heads, ",", queries, "]"));
  }
  const double dropout = attrs.Float("dropout_p");
  if (dropout < 0 || dropout >= 1) {
    return Malformed(Malformation::kAttrRange,
                     absl::StrCat("attribute dropout_p is ", dropout, "; it lies in [0, 1)"));
  }
  if ((dropout > 0) != (operands.size() > 7)) {
    return misfit(dropout > 0 ? "dropout needs the random generator's seed and offset last"
                              : "without dropout there is no more than a bias");
  }
  const auto integer = [](const TensorType* t) {
    return !IsFloat(t->dtype) && t->dtype != DType::kBool;
  };
  if (dropout > 0 && !(integer(operands.back()) && integer(operands[operands.size() - 2]))) {
    return BadDType(operands, "the random generator's seed and offset are integers");
  }
  if (operands.size() == 7 || operands.size() == 9) {
    const Shape scores = {batch, heads, queries, keys};
    if (!IsFloat(operands[6]->dtype)) return BadDType(operands, "the bias is floating");
    const std::optional<Shape> both = BroadcastShapes(scores, operands[6]->shape);
    if (!both.has_value() || *both != scores) {
      return misfit(absl::StrCat("the bias has to broadcast to ", Print(scores)));
    }
  }
  return std::vector<TensorType>{q, k, v};
}

}  // namespace

absl::StatusOr<std::vector<TensorType>> InferLibrary(Op op, Operands operands, const Attrs& attrs) {
  return op == Op::matmul ? InferMatMul(operands, attrs) : InferAttention(operands, attrs);
}

}  // namespace retrograd
