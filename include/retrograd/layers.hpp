// Layers as functions on a Builder: a forward that adds a layer's nodes, and its backward, which
// adds those of the gradients. A forward's graph stores what its backward's graph reads, as outputs
// that become inputs there. Shapes: rows is any number of examples or tokens.
#ifndef RETROGRAD_LAYERS_HPP_
#define RETROGRAD_LAYERS_HPP_

#include <cmath>
#include <cstdint>
#include <vector>

#include "retrograd/retrograd.hpp"

namespace retrograd {
inline namespace v0 {
namespace layers {

namespace detail {

inline Value Transposed(Builder& b, Value v) {
  const int64_t rank = static_cast<int64_t>(b.TypeOf(v).shape.size());
  std::vector<int64_t> perm;
  for (int64_t i = 0; i < rank - 2; ++i) perm.push_back(i);
  perm.insert(perm.end(), {rank - 1, rank - 2});
  return b.Add("permute", {v}, {{"perm", perm}});
}

// Over the last axis, which keeps extent 1.
inline Value ReduceLast(Builder& b, const char* op, Value v) {
  const int64_t last = static_cast<int64_t>(b.TypeOf(v).shape.size()) - 1;
  return b.Add(op, {v}, {{"axes", std::vector<int64_t>{last}}, {"keep", 1}});
}

inline Value MeanLast(Builder& b, Value v) {
  const Tensor type = b.TypeOf(v);
  const double n = type.shape.empty() ? 1 : static_cast<double>(type.shape.back());
  return b.Add("mul", {ReduceLast(b, "sum", v), b.Scalar(1 / n, type.dtype)});
}

inline Value SumRows(Builder& b, Value v) {
  return b.Add("sum", {v}, {{"axes", std::vector<int64_t>{0}}});
}

inline Value Times(Builder& b, Value v, double factor) {
  return b.Add("mul", {v, b.Scalar(factor, b.TypeOf(v).dtype)});
}

}  // namespace detail

// y[rows, out] = x[rows, in] w[out, in]ᵀ + bias[out]
inline Value Linear(Builder& b, Value x, Value w, Value bias) {
  return b.Add("add", {b.Add("matmul", {x, detail::Transposed(b, w)}), bias});
}

struct LinearGradients {
  Value dx, dw, dbias;
};
// dx = dy w, dw = dyᵀ x, dbias = sum of dy's rows
inline LinearGradients LinearBackward(Builder& b, Value dy, Value x, Value w) {
  return {b.Add("matmul", {dy, w}), b.Add("matmul", {detail::Transposed(b, dy), x}),
          detail::SumRows(b, dy)};
}

// y = max(x, 0); its backward reads y.
inline Value Relu(Builder& b, Value x) { return b.Add("relu", {x}); }
inline Value ReluBackward(Builder& b, Value dy, Value y) { return b.Add("relu_backward", {dy, y}); }

// y = x Φ(x), Φ the normal distribution; its backward reads x.
inline Value Gelu(Builder& b, Value x) {
  const Value cdf = b.Add(
      "add", {b.Scalar(1, b.TypeOf(x).dtype), b.Add("erf", {detail::Times(b, x, std::sqrt(0.5))})});
  return b.Add("mul", {detail::Times(b, x, 0.5), cdf});
}
inline Value GeluBackward(Builder& b, Value dy, Value x) { return b.Add("gelu_backward", {dy, x}); }

// y = x σ(x); its backward reads x.
inline Value Silu(Builder& b, Value x) { return b.Add("mul", {x, b.Add("sigmoid", {x})}); }
inline Value SiluBackward(Builder& b, Value dy, Value x) { return b.Add("silu_backward", {dy, x}); }

struct LayerNormResult {
  Value y;           // as x
  Value mean, rstd;  // [rows, 1]; for the backward
};
// y = (x - mean) rstd w + bias over the last axis of x[rows, features]; rstd = 1 / √(var + eps)
inline LayerNormResult LayerNorm(Builder& b, Value x, Value w, Value bias, double eps = 1e-5) {
  const Value mean = detail::MeanLast(b, x);
  const Value centred = b.Add("sub", {x, mean});
  const Value variance = detail::MeanLast(b, b.Add("mul", {centred, centred}));
  const Value rstd = b.Add("rsqrt", {b.Add("add", {variance, b.Scalar(eps, b.TypeOf(x).dtype)})});
  return {b.Add("fma", {b.Add("mul", {centred, rstd}), w, bias}), mean, rstd};
}

struct NormGradients {
  Value dx, dw, dbias;  // RmsNormBackward: without dbias
};
inline NormGradients LayerNormBackward(Builder& b, Value dy, Value x, Value mean, Value rstd,
                                       Value w) {
  const Value dx = b.Add("layer_norm_backward", {dy, x, mean, rstd, w});
  return {dx, Builder::Nth(dx, 1), Builder::Nth(dx, 2)};
}

struct RmsNormResult {
  Value y;
  Value rstd;  // [rows, 1]; for the backward
};
// y = x rstd w over the last axis of x[rows, features]; rstd = 1 / √(mean of x² + eps)
inline RmsNormResult RmsNorm(Builder& b, Value x, Value w, double eps = 1e-6) {
  const Value mean = detail::MeanLast(b, b.Add("mul", {x, x}));
  const Value rstd = b.Add("rsqrt", {b.Add("add", {mean, b.Scalar(eps, b.TypeOf(x).dtype)})});
  return {b.Add("mul", {b.Add("mul", {x, rstd}), w}), rstd};
}
inline NormGradients RmsNormBackward(Builder& b, Value dy, Value x, Value rstd, Value w) {
  const Value dx = b.Add("rms_norm_backward", {dy, x, rstd, w});
  return {dx, Builder::Nth(dx, 1), {}};
}

// Over the last axis; its backward reads y.
inline Value Softmax(Builder& b, Value x) {
  const Value e = b.Add("exp", {b.Add("sub", {x, detail::ReduceLast(b, "amax", x)})});
  return b.Add("div", {e, detail::ReduceLast(b, "sum", e)});
}
inline Value SoftmaxBackward(Builder& b, Value dy, Value y) {
  return b.Add("softmax_backward", {dy, y});
}

struct CrossEntropyResult {
  Value loss;               // rank 0: the mean over the rows
  Value log_probabilities;  // [rows, classes]; for the backward
};
namespace detail {
// 1 where the column is the row's label, else 0.
inline Value OneHot(Builder& b, Value labels, const Tensor& like) {
  const Value columns =
      b.Add("iota", {},
            {{"axis", 1}, {"start", 0}, {"step", 1}, {"dtype", "i64"}, {"shape", like.shape}});
  const Value rows =
      b.Add("reshape", {labels}, {{"shape", std::vector<int64_t>{like.shape[0], 1}}});
  return b.Add("cast", {b.Add("eq", {columns, rows})}, {{"dtype", Builder::NameOf(like.dtype)}});
}
}  // namespace detail
// The mean over rows of -log softmax(logits[rows, classes])[label], labels: int64 [rows].
inline CrossEntropyResult SoftmaxCrossEntropy(Builder& b, Value logits, Value labels) {
  const Tensor type = b.TypeOf(logits);
  if (type.shape.size() != 2) return {b.Fail("logits must be [rows, classes]"), {}};
  const Value shifted = b.Add("sub", {logits, detail::ReduceLast(b, "amax", logits)});
  const Value log_sum = b.Add("log", {detail::ReduceLast(b, "sum", b.Add("exp", {shifted}))});
  const Value log_probabilities = b.Add("sub", {shifted, log_sum});
  const Value picked = b.Add("mul", {log_probabilities, detail::OneHot(b, labels, type)});
  const Value sum = b.Add("sum", {picked}, {{"axes", std::vector<int64_t>{0, 1}}});
  return {detail::Times(b, sum, -1.0 / static_cast<double>(type.shape[0])), log_probabilities};
}
// dlogits = (softmax - one hot) / rows, for a loss whose own gradient is 1.
inline Value SoftmaxCrossEntropyBackward(Builder& b, Value log_probabilities, Value labels) {
  const Tensor type = b.TypeOf(log_probabilities);
  if (type.shape.size() != 2) return b.Fail("log_probabilities must be [rows, classes]");
  const Value softmax = b.Add("exp", {log_probabilities});
  const Value difference = b.Add("sub", {softmax, detail::OneHot(b, labels, type)});
  return detail::Times(b, difference, 1.0 / static_cast<double>(type.shape[0]));
}

struct AttentionResult {
  Value y;              // [..., queries, size]
  Value probabilities;  // [..., queries, keys]; for the backward
};
// y = softmax(scale q kᵀ) v; q: [..., queries, size], k and v: [..., keys, size]
inline AttentionResult Attention(Builder& b, Value q, Value k, Value v, double scale) {
  const Value scores = b.Add("matmul", {q, detail::Transposed(b, k)});
  const Value p = Softmax(b, detail::Times(b, scores, scale));
  return {b.Add("matmul", {p, v}), p};
}
struct AttentionGradients {
  Value dq, dk, dv;
};
inline AttentionGradients AttentionBackward(Builder& b, Value dy, Value q, Value k, Value v,
                                            Value probabilities, double scale) {
  const Value dp = b.Add("matmul", {dy, detail::Transposed(b, v)});
  const Value ds = detail::Times(b, SoftmaxBackward(b, dp, probabilities), scale);
  return {b.Add("matmul", {ds, k}), b.Add("matmul", {detail::Transposed(b, ds), q}),
          b.Add("matmul", {detail::Transposed(b, probabilities), dy})};
}

// p - rate g
inline Value Sgd(Builder& b, Value p, Value g, double rate) {
  return b.Add("sub", {p, detail::Times(b, g, rate)});
}

struct AdamOptions {
  double rate = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
};
struct AdamResult {
  Value p, m, v;
};
// Kingma and Ba, algorithm 1 (arXiv:1412.6980). step: rank 0, of p's dtype, counts from 1.
inline AdamResult Adam(Builder& b, Value p, Value g, Value m, Value v, Value step,
                       const AdamOptions& options = {}) {
  const DType dtype = b.TypeOf(p).dtype;
  const auto blend = [&](Value old, Value added, double beta) {
    return b.Add("add", {detail::Times(b, old, beta), detail::Times(b, added, 1 - beta)});
  };
  const auto unbiased = [&](Value moment, double beta) {
    const Value power = b.Add("pow", {b.Scalar(beta, dtype), step});
    return b.Add("div", {moment, b.Add("sub", {b.Scalar(1, dtype), power})});
  };
  const Value m2 = blend(m, g, options.beta1);
  const Value v2 = blend(v, b.Add("mul", {g, g}), options.beta2);
  const Value root = b.Add("sqrt", {unbiased(v2, options.beta2)});
  const Value divisor = b.Add("add", {root, b.Scalar(options.eps, dtype)});
  const Value change = b.Add("div", {unbiased(m2, options.beta1), divisor});
  return {b.Add("sub", {p, detail::Times(b, change, options.rate)}), m2, v2};
}

}  // namespace layers
}  // namespace v0
}  // namespace retrograd

#endif  // RETROGRAD_LAYERS_HPP_
