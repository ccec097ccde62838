// The forward passes whose backwards models/ builds, in double and written for clarity alone:
// finite differences of them judge the builders.
#ifndef RETROGRAD_TESTS_SUPPORT_GRAPHS_FORWARD_MODELS_H_
#define RETROGRAD_TESTS_SUPPORT_GRAPHS_FORWARD_MODELS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace retrograd {

// Dense row-major tensors by the names that the backward graph gives them. A forward reads the
// parameters and the data, and writes what the backward needs.
using NamedTensors = std::map<std::string, std::vector<double>>;

struct MlpSizes {
  int64_t layers, tokens, in, hidden, out;
  std::string act;
  bool bias;
};
// Reads "x". The loss is Σ dy · result.
double MlpLoss(const MlpSizes& sizes, NamedTensors& tensors);

struct NormStackSizes {
  int64_t layers, rows, columns;
  std::string norm;
  bool residual;
};
double NormStackLoss(const NormStackSizes& sizes, NamedTensors& tensors);

struct TransformerSizes {
  int64_t layers, d, batch, seq, heads, kv_heads, ff, vocab;
  std::string norm, mlp;
  bool bias, causal;
};
// Without vocab reads "x", and the loss is Σ dy · result. With it reads "embedding.weight",
// "tokens" and "target", and the loss is dloss times the mean negative log-likelihood.
double TransformerLoss(const TransformerSizes& sizes, NamedTensors& tensors);

struct MoeSizes {
  int64_t tokens, experts, chosen, width, inner;
};
// Reads "x", whose `chosen` best experts it finds. The loss is Σ dy · result.
double MoeLoss(const MoeSizes& sizes, NamedTensors& tensors);

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_GRAPHS_FORWARD_MODELS_H_
