// attention_backward: dO, Q, K, V, O [B,H,T,D], log-sum-exp [B,H,T], then a bias that broadcasts to
// the scores [B,H,T,S] or none, then with dropout_p > 0 the random generator's seed and offset,
// which are integers -> dQ, dK, dV, then with score_gradient dS [B,H,T,S], the gradient of the
// scores with their bias.
#include "absl/strings/str_cat.h"
#include "graph/base/status.h"
#include "graph/ir/library/library_rows.h"
#include "graph/ir/library/refusals.h"

namespace retrograd {
namespace {

using Operands = LibraryOp::Operands;

constexpr AttrRule kAttrs[] = {{"causal", AttrKind::kFlag, false},
                               {"dropout_p", AttrKind::kNumber, false},
                               {"scale", AttrKind::kNumber},
                               {"score_gradient", AttrKind::kFlag, false},
                               {"variant", AttrKind::kString, false}};

absl::StatusOr<std::vector<TensorType>> Infer(Operands operands, const Attrs& attrs) {
  const TensorType &d_o = *operands[0], &q = *operands[1], &k = *operands[2], &v = *operands[3],
                   &o = *operands[4], &lse = *operands[5];
  const auto bad_dtype = [&](absl::string_view rule) {
    return BadOperands(Malformation::kOperandDType, operands, rule);
  };
  if (!SameDType(operands.subspan(0, 5)) || !IsFloat(q.dtype) || IsFp8(q.dtype)) {
    return bad_dtype("dO, Q, K, V and O share one floating dtype");
  }
  if (lse.dtype != DType::kFp32 && lse.dtype != DType::kFp64) {
    return bad_dtype("the log-sum-exp is f32 or f64");
  }
  const auto misfit = [&](absl::string_view rule) {
    return BadOperands(Malformation::kAttentionShape, operands, rule);
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
    return misfit(absl::StrCat("O and dO need the shape ", PrintInts(out)));
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
    return bad_dtype("the random generator's seed and offset are integers");
  }
  for (size_t i = operands.size() - (dropout > 0 ? 2 : 0); i < operands.size(); ++i) {
    if (operands[i]->elements() != 1) {
      return misfit("the random generator's seed and offset have one element each");
    }
  }
  const Shape scores = {batch, heads, queries, keys};
  if (operands.size() == 7 || operands.size() == 9) {
    if (!IsFloat(operands[6]->dtype)) return bad_dtype("the bias is floating");
    const std::optional<Shape> both = BroadcastShapes(scores, operands[6]->shape);
    if (!both.has_value() || *both != scores) {
      return misfit(absl::StrCat("the bias has to broadcast to ", PrintInts(scores)));
    }
  }
  std::vector<TensorType> results = {q, k, v};
  if (attrs.Int("score_gradient") != 0) results.push_back({q.dtype, scores});
  return results;
}

// What stands behind the log-sum-exp broadcasts to the scores: its dims of more than 1 are theirs.
void TieToScores(int operand, const Shape& shape, LibraryDims& dims) {
  constexpr int kQ = 1, kK = 2;
  const int shift = 4 - static_cast<int>(shape.size());
  for (int d = 0; d + shift < 4; ++d) {
    if (shift < 0 || shape[d] == 1) continue;
    const TensorDim score = d + shift < 3 ? TensorDim{kQ, d + shift} : TensorDim{kK, 2};
    dims.equal.push_back({{operand, d}, score});
  }
}

LibraryDims Dims(Operands tensors, int operands) {
  constexpr int kQ = 1, kK = 2, kV = 3;
  const bool score_gradient = static_cast<int>(tensors.size()) > operands + 3;
  LibraryDims dims;
  for (int i : {0, 2, 3, 4, 5}) dims.equal.push_back({{kQ, 0}, {i, 0}});
  for (int i : {0, 4, 5}) {
    dims.equal.push_back({{kQ, 1}, {i, 1}});
    dims.equal.push_back({{kQ, 2}, {i, 2}});
  }
  dims.equal.push_back({{kK, 2}, {kV, 2}});
  if (operands > 6) TieToScores(6, tensors[6]->shape, dims);
  if (score_gradient) TieToScores(operands + 3, tensors[operands + 3]->shape, dims);
  for (int r = 0; r < 3; ++r) {
    for (int d = 0; d < 4; ++d) dims.equal.push_back({{kQ + r, d}, {operands + r, d}});
  }
  return dims;
}

}  // namespace

const LibraryOp kAttentionBackwardOp = {
    .op = Op::attention_backward, .attrs = kAttrs, .infer = Infer, .dims = Dims};

}  // namespace retrograd
