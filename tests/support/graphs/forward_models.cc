#include "tests/support/graphs/forward_models.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

using Matrix = std::vector<double>;  // [rows, features]

constexpr double kEpsilon = 1e-5;  // of the norms

// y = x Wᵀ + bias, W: [out, in].
Matrix Linear(const NamedTensors& t, const std::string& name, const Matrix& x, int64_t rows,
              bool bias) {
  const Matrix& w = t.at(name + ".weight");
  const int64_t in = static_cast<int64_t>(x.size()) / rows;
  const int64_t out = static_cast<int64_t>(w.size()) / in;
  Matrix y(rows * out);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t o = 0; o < out; ++o) {
      double sum = bias ? t.at(name + ".bias")[o] : 0;
      for (int64_t i = 0; i < in; ++i) sum += x[r * in + i] * w[o * in + i];
      y[r * out + o] = sum;
    }
  }
  return y;
}

// Saves the statistics under the norm's name.
Matrix Norm(NamedTensors& t, const std::string& name, const std::string& kind, const Matrix& x,
            int64_t rows) {
  const int64_t n = static_cast<int64_t>(x.size()) / rows;
  const Matrix& w = t.at(name + ".weight");
  Matrix y(x.size()), means(rows), rstds(rows);
  for (int64_t r = 0; r < rows; ++r) {
    const double* row = &x[r * n];
    double mean = 0, square = 0;
    if (kind == "layer") {
      for (int64_t i = 0; i < n; ++i) mean += row[i] / static_cast<double>(n);
    }
    for (int64_t i = 0; i < n; ++i) {
      square += (row[i] - mean) * (row[i] - mean) / static_cast<double>(n);
    }
    const double rstd = 1 / std::sqrt(square + kEpsilon);
    for (int64_t i = 0; i < n; ++i) {
      y[r * n + i] = (row[i] - mean) * rstd * w[i];
      if (kind == "layer") y[r * n + i] += t.at(name + ".bias")[i];
    }
    means[r] = mean;
    rstds[r] = rstd;
  }
  t[name + ".rstd"] = rstds;
  if (kind == "layer") t[name + ".mean"] = means;
  return y;
}

double Activate(const std::string& kind, double x) {
  if (kind == "gelu") return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
  if (kind == "gelu_tanh") {
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  }
  if (kind == "silu") return x / (1 + std::exp(-x));
  RG_CHECK(kind == "relu");
  return std::max(x, 0.0);
}

Matrix Activate(const std::string& kind, Matrix x) {
  for (double& v : x) v = Activate(kind, v);
  return x;
}

Matrix Plus(Matrix a, const Matrix& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

double Dot(const Matrix& a, const Matrix& b) {
  RG_CHECK(a.size() == b.size());
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// [batch * seq, heads * dim] to [batch, heads, seq, dim].
Matrix SplitHeads(const Matrix& x, const TransformerSizes& s, int64_t heads) {
  const int64_t dim = s.d / s.heads;
  Matrix y(x.size());
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t q = 0; q < s.seq; ++q) {
        for (int64_t i = 0; i < dim; ++i) {
          y[((b * heads + h) * s.seq + q) * dim + i] = x[((b * s.seq + q) * heads + h) * dim + i];
        }
      }
    }
  }
  return y;
}

// One query of one head; returns the log-sum-exp of its scores and adds to its row of o.
double Attend(const double* q, const double* k, const double* v, int64_t keys, int64_t dim,
              double* o) {
  std::vector<double> scores(keys);
  double highest = -INFINITY, sum = 0;
  for (int64_t j = 0; j < keys; ++j) {
    for (int64_t i = 0; i < dim; ++i) scores[j] += q[i] * k[j * dim + i];
    scores[j] /= std::sqrt(static_cast<double>(dim));
    highest = std::max(highest, scores[j]);
  }
  for (double score : scores) sum += std::exp(score - highest);
  const double lse = highest + std::log(sum);
  for (int64_t j = 0; j < keys; ++j) {
    for (int64_t i = 0; i < dim; ++i) o[i] += std::exp(scores[j] - lse) * v[j * dim + i];
  }
  return lse;
}

Matrix Attention(NamedTensors& t, const std::string& name, const TransformerSizes& s,
                 const Matrix& h) {
  const int64_t rows = s.batch * s.seq, dim = s.d / s.heads;
  const Matrix q = SplitHeads(Linear(t, name + ".q", h, rows, s.bias), s, s.heads);
  const Matrix k = SplitHeads(Linear(t, name + ".k", h, rows, s.bias), s, s.kv_heads);
  const Matrix v = SplitHeads(Linear(t, name + ".v", h, rows, s.bias), s, s.kv_heads);
  Matrix o(q.size()), lse(s.batch * s.heads * s.seq), merged(q.size());
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t head = 0; head < s.heads; ++head) {
      const int64_t kv = (b * s.kv_heads + head / (s.heads / s.kv_heads)) * s.seq * dim;
      for (int64_t i = 0; i < s.seq; ++i) {
        const int64_t at = (b * s.heads + head) * s.seq + i;
        lse[at] = Attend(&q[at * dim], &k[kv], &v[kv], s.causal ? i + 1 : s.seq, dim, &o[at * dim]);
        std::copy_n(&o[at * dim], dim, &merged[((b * s.seq + i) * s.heads + head) * dim]);
      }
    }
  }
  t[name + ".q_heads"] = q;
  t[name + ".k_heads"] = k;
  t[name + ".v_heads"] = v;
  t[name + ".o_heads"] = o;
  t[name + ".logsumexp"] = lse;
  return Linear(t, name + ".o", merged, rows, s.bias);
}

Matrix Mlp(NamedTensors& t, const std::string& name, const TransformerSizes& s, const Matrix& h) {
  const int64_t rows = s.batch * s.seq;
  const bool gated = s.mlp == "swiglu";
  const Matrix a = Linear(t, name + (gated ? ".gate" : ".up"), h, rows, s.bias);
  Matrix g = Activate(gated ? "silu" : s.mlp, a);
  if (gated) {
    t[name + ".u"] = Linear(t, name + ".up", h, rows, s.bias);
    for (size_t i = 0; i < g.size(); ++i) g[i] *= t[name + ".u"][i];
  }
  t[name + ".a"] = a;
  t[name + ".g"] = g;
  return Linear(t, name + ".down", g, rows, s.bias);
}

Matrix Block(NamedTensors& t, const std::string& name, const TransformerSizes& s, const Matrix& x) {
  const int64_t rows = s.batch * s.seq;
  t[name + ".x"] = x;
  const Matrix h1 = t[name + ".h1"] = Norm(t, name + ".norm1", s.norm, x, rows);
  const Matrix x1 = t[name + ".x1"] = Plus(x, Attention(t, name + ".attn", s, h1));
  const Matrix h2 = t[name + ".h2"] = Norm(t, name + ".norm2", s.norm, x1, rows);
  return Plus(x1, Mlp(t, name + ".mlp", s, h2));
}

Matrix Embed(const NamedTensors& t, const TransformerSizes& s) {
  Matrix x;
  for (double token : t.at("tokens")) {
    const double* row = &t.at("embedding.weight")[static_cast<int64_t>(token) * s.d];
    x.insert(x.end(), row, row + s.d);
  }
  return x;
}

double MeanLoss(NamedTensors& t, const TransformerSizes& s, const Matrix& x) {
  const int64_t rows = s.batch * s.seq;
  t["head.x"] = x;
  const Matrix h = t["head.h"] = Norm(t, "norm", s.norm, x, rows);
  Matrix logp = Linear(t, "head", h, rows, false);
  double loss = 0;
  for (int64_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (int64_t i = 0; i < s.vocab; ++i) sum += std::exp(logp[r * s.vocab + i]);
    for (int64_t i = 0; i < s.vocab; ++i) logp[r * s.vocab + i] -= std::log(sum);
    loss -= logp[r * s.vocab + static_cast<int64_t>(t.at("target")[r])] / static_cast<double>(rows);
  }
  t["logp"] = logp;
  return loss;
}

// The experts of a token with the largest probabilities, the largest first.
std::vector<int64_t> Best(const double* p, int64_t experts, int64_t chosen) {
  std::vector<int64_t> order(experts);
  for (int64_t e = 0; e < experts; ++e) order[e] = e;
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return p[a] > p[b]; });
  order.resize(chosen);
  return order;
}

// Saves the probabilities, those of the chosen, and which these are; returns the latter.
std::vector<int64_t> Route(NamedTensors& t, const MoeSizes& s, const Matrix& x) {
  Matrix p = Linear(t, "router", x, s.tokens, false);
  std::vector<int64_t> all;
  Matrix v, chosen;
  for (int64_t r = 0; r < s.tokens; ++r) {
    double* row = &p[r * s.experts];
    double sum = 0;
    for (int64_t e = 0; e < s.experts; ++e) sum += row[e] = std::exp(row[e]);
    for (int64_t e = 0; e < s.experts; ++e) row[e] /= sum;
    for (int64_t e : Best(row, s.experts, s.chosen)) {
      all.push_back(e);
      v.push_back(row[e]);
      chosen.push_back(static_cast<double>(e));
    }
  }
  t["router.p"] = p;
  t["router.v"] = v;
  t["router.chosen"] = chosen;
  return all;
}

// One row through one expert; appends what the backward reads.
Matrix Expert(NamedTensors& t, const MoeSizes& s, int64_t expert, const double* x) {
  const double* up = &t.at("experts.gate_up")[expert * 2 * s.inner * s.width];
  const double* down = &t.at("experts.down")[expert * s.width * s.inner];
  Matrix both(2 * s.inner), y(s.width);
  for (int64_t i = 0; i < 2 * s.inner; ++i) {
    for (int64_t h = 0; h < s.width; ++h) both[i] += up[i * s.width + h] * x[h];
  }
  for (int64_t h = 0; h < s.width; ++h) {
    for (int64_t i = 0; i < s.inner; ++i) {
      y[h] += down[h * s.inner + i] * Activate("silu", both[i]) * both[s.inner + i];
    }
  }
  t["experts.a_u"].insert(t["experts.a_u"].end(), both.begin(), both.end());
  t["experts.y"].insert(t["experts.y"].end(), y.begin(), y.end());
  return y;
}

}  // namespace

double MlpLoss(const MlpSizes& sizes, NamedTensors& tensors) {
  Matrix h = tensors.at("x");
  for (int64_t i = 0; i < sizes.layers; ++i) {
    const std::string name = absl::StrCat("layers.", i);
    tensors[name + ".h"] = h;
    const Matrix a = tensors[name + ".a"] = Linear(tensors, name, h, sizes.tokens, sizes.bias);
    h = i + 1 == sizes.layers ? a : Activate(sizes.act, a);
  }
  return Dot(tensors.at("dy"), h);
}

double NormStackLoss(const NormStackSizes& sizes, NamedTensors& tensors) {
  Matrix x = tensors.at("x");
  for (int64_t i = 0; i < sizes.layers; ++i) {
    const std::string name = absl::StrCat("norms.", i);
    tensors[name + ".x"] = x;
    const Matrix y = Norm(tensors, name, sizes.norm, x, sizes.rows);
    x = sizes.residual ? Plus(x, y) : y;
  }
  return Dot(tensors.at("dy"), x);
}

double TransformerLoss(const TransformerSizes& sizes, NamedTensors& tensors) {
  Matrix x = sizes.vocab != 0 ? Embed(tensors, sizes) : tensors.at("x");
  for (int64_t i = 0; i < sizes.layers; ++i) {
    x = Block(tensors, absl::StrCat("layers.", i), sizes, x);
  }
  return sizes.vocab != 0 ? tensors.at("dloss")[0] * MeanLoss(tensors, sizes, x)
                          : Dot(tensors.at("dy"), x);
}

double MoeLoss(const MoeSizes& sizes, NamedTensors& tensors) {
  const Matrix x = tensors.at("x");
  const std::vector<int64_t> expert_of = Route(tensors, sizes, x);
  for (const char* name : {"order", "token", "ends", "experts.a_u", "experts.y"}) {
    tensors[name].clear();
  }
  Matrix result(x.size());
  for (int64_t expert = 0; expert < sizes.experts; ++expert) {
    for (size_t choice = 0; choice < expert_of.size(); ++choice) {
      if (expert_of[choice] != expert) continue;
      const int64_t token = static_cast<int64_t>(choice) / sizes.chosen;
      const double* v = &tensors.at("router.v")[token * sizes.chosen];
      double sum = 0;
      for (int64_t i = 0; i < sizes.chosen; ++i) sum += v[i];
      const double weight = tensors.at("router.v")[choice] / sum;
      const Matrix y = Expert(tensors, sizes, expert, &x[token * sizes.width]);
      for (int64_t h = 0; h < sizes.width; ++h) result[token * sizes.width + h] += weight * y[h];
      tensors["order"].push_back(static_cast<double>(choice));
      tensors["token"].push_back(static_cast<double>(token));
    }
    tensors["ends"].push_back(static_cast<double>(tensors["order"].size()));
  }
  return Dot(tensors.at("dy"), result);
}

}  // namespace retrograd
