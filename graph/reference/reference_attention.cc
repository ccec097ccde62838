// Attention backward from the saved log-sum-exp, one query row at a time:
//   S = scale Q K^T + bias,  P = exp(S - lse)
//   dV = (P M)^T dO,  dP = M dO V^T,  D = rowsum(dO * O),  dS = P (dP - D)
//   dQ = scale dS K,  dK = scale dS^T Q, and dS itself where it is a result
// (Dao et al., FlashAttention, arXiv:2205.14135, algorithm 4.) A causal mask keeps key j <= query
// i. Key head g serves the query heads [g n, (g + 1) n), n = heads / key heads; its gradients sum
// over them. M is 1, or with dropout 1 / (1 - p) for what is kept and 0 for the rest.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/base/status.h"
#include "graph/ir/library/dropout_mask.h"
#include "graph/reference/library_reference.h"

namespace retrograd {
namespace {

struct Sizes {
  int64_t batch, heads, kv_heads, queries, keys, width, value_width;
};

// Offset of bias[b, h, i, 0] and the step along the keys, under broadcasting.
struct BiasReader {
  const double* data = nullptr;
  int64_t strides[4] = {};

  explicit BiasReader(const DenseTensor& bias) : data(bias.data) {
    const Shape& shape = bias.type->shape;
    const std::vector<int64_t> dense = DenseStrides(shape);
    for (size_t i = 0; i < shape.size(); ++i) {
      strides[4 - shape.size() + i] = shape[i] == 1 ? 0 : dense[i];
    }
  }
  double At(int64_t b, int64_t h, int64_t i, int64_t j) const {
    return data[b * strides[0] + h * strides[1] + i * strides[2] + j * strides[3]];
  }
};

double Dot(const double* a, const double* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

void AddScaled(double factor, const double* from, double* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] += factor * from[i];
}

// Of seed and offset, which doubles hold exactly below 2^53.
absl::StatusOr<DropoutMask> MaskOf(const Attrs& attrs, absl::Span<const DenseTensor> operands,
                                   size_t seed) {
  const std::optional<DropoutVariant> variant = DropoutVariantOf(attrs.String("variant"));
  if (!variant.has_value()) {
    return absl::UnimplementedError(absl::StrCat("dropout by the random numbers of \"",
                                                 attrs.String("variant"), "\" is not known"));
  }
  const auto integer = [&](size_t operand) -> absl::StatusOr<uint64_t> {
    const double value = operands[operand].data[0];
    if (!(value >= 0 && value < 0x1p53)) {
      return absl::UnimplementedError(
          absl::StrCat("a seed or offset of dropout from 0 to 2^53 is known here, not ", value));
    }
    return static_cast<uint64_t>(value);
  };
  RG_ASSIGN_OR_RETURN(const uint64_t seed_number, integer(seed));
  RG_ASSIGN_OR_RETURN(const uint64_t offset, integer(seed + 1));
  const Shape &q = operands[1].type->shape, &k = operands[2].type->shape;
  return DropoutMask(*variant, attrs.Float("dropout_p"), seed_number, offset, q[2], k[2]);
}

}  // namespace

// The magnitudes of the gradients need the exact operands too: those give the probabilities.
absl::Status EvaluateAttention(const LibraryNode& node, absl::Span<double* const> out) {
  const Attrs& attrs = node.attrs;
  const absl::Span<const DenseTensor> operands = node.operands, exact = node.exact;
  const bool magnitudes = node.magnitudes;
  double *dq = out[0], *dk = out[1], *dv = out[2], *scores = out.size() > 3 ? out[3] : nullptr;
  const size_t seed = exact.size() - (attrs.Float("dropout_p") > 0 ? 2 : 0);
  std::optional<DropoutMask> mask;
  if (seed < exact.size()) {
    RG_ASSIGN_OR_RETURN(const DropoutMask drawn, MaskOf(attrs, exact, seed));
    mask.emplace(drawn);
  }
  const Shape &q_shape = operands[1].type->shape, &v_shape = operands[3].type->shape;
  const Sizes s = {q_shape[0], q_shape[1], v_shape[1], q_shape[2],
                   v_shape[2], q_shape[3], v_shape[3]};
  const double scale = attrs.Float("scale");
  const double size = magnitudes ? std::fabs(scale) : scale;
  const bool causal = attrs.Int("causal") == 1;
  std::optional<BiasReader> bias;
  if (seed > 6) bias.emplace(exact[6]);
  std::fill(dq, dq + s.batch * s.heads * s.queries * s.width, 0.0);
  std::fill(dk, dk + s.batch * s.kv_heads * s.keys * s.width, 0.0);
  std::fill(dv, dv + s.batch * s.kv_heads * s.keys * s.value_width, 0.0);
  if (scores != nullptr) {
    std::fill(scores, scores + s.batch * s.heads * s.queries * s.keys, 0.0);
  }
  const int64_t group = s.heads / s.kv_heads;
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      const int64_t kv = b * s.kv_heads + h / group;
      for (int64_t i = 0; i < s.queries; ++i) {
        const int64_t row = (b * s.heads + h) * s.queries + i;
        const double* d_o = operands[0].data + row * s.value_width;
        const double* q = operands[1].data + row * s.width;
        const double delta = Dot(d_o, operands[4].data + row * s.value_width, s.value_width);
        const double lse = exact[5].data[row];
        if (lse == -std::numeric_limits<double>::infinity()) continue;  // every key was masked
        const int64_t last = causal ? std::min(i + 1, s.keys) : s.keys;
        for (int64_t j = 0; j < last; ++j) {
          const int64_t key = kv * s.keys + j;
          const double* k = operands[2].data + key * s.width;
          const double* v = operands[3].data + key * s.value_width;
          double score =
              scale * Dot(exact[1].data + row * s.width, exact[2].data + key * s.width, s.width);
          if (bias.has_value()) score += bias->At(b, h, i, j);
          double p = std::exp(score - lse);
          if (magnitudes && p > 0) {
            // d exp(x) = exp(x) dx: the exponent's own magnitude counts.
            p *= 1 + size * Dot(q, k, s.width) + std::fabs(lse) + std::fabs(score);
          }
          const double share = mask ? mask->ShareOf(b * s.heads + h, i, j) : 1;
          const double dp = share * Dot(d_o, v, s.value_width);
          const double ds = p * (magnitudes ? dp + delta : dp - delta);
          AddScaled(p * share, d_o, dv + key * s.value_width, s.value_width);
          AddScaled(size * ds, k, dq + row * s.width, s.width);
          AddScaled(size * ds, q, dk + key * s.width, s.width);
          if (scores != nullptr) scores[row * s.keys + j] = ds;
        }
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace retrograd
