// Pre-norm transformer blocks, as GPT and Llama have them, with or without embedding and loss.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "models/builders.h"
#include "models/layers.h"

namespace retrograd {
namespace {

struct Config {
  int64_t layers, batch, length, heads, kv_heads, head_dim, width, ff, vocab;
  absl::string_view norm, mlp;
  bool bias, causal;

  int64_t rows() const { return batch * length; }
};

absl::StatusOr<Config> MakeConfig(const Parameters& p) {
  Config c{};
  c.layers = p["layers"];
  c.length = p["seq"] != 0 ? p["seq"] : p["tokens"];
  c.heads = p["heads"];
  c.kv_heads = p["kv_heads"] != 0 ? p["kv_heads"] : c.heads;
  c.width = p["d"];
  c.ff = p["ff"] != 0 ? p["ff"] : 4 * c.width;
  c.vocab = p["vocab"];
  c.norm = p.Choice("norm");
  c.mlp = p.Choice("mlp");
  c.bias = p["bias"] != 0;
  c.causal = p["causal"] != 0;
  if (c.width % c.heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("model transformer: d=", c.width, " is no multiple of heads=", c.heads));
  }
  if (c.heads % c.kv_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat("model transformer: heads=", c.heads,
                                                   " is no multiple of kv_heads=", c.kv_heads));
  }
  if (p["tokens"] % c.length != 0) {
    return absl::InvalidArgumentError(absl::StrCat("model transformer: tokens=", p["tokens"],
                                                   " is no multiple of seq=", c.length));
  }
  c.batch = p["tokens"] / c.length;
  c.head_dim = c.width / c.heads;
  return c;
}

// [batch, heads, length, head_dim], lying in memory as the projection wrote it: [rows, features].
ValueId SavedHeads(LayerBackward& net, const Config& c, std::string name, int64_t heads) {
  const int64_t row = heads * c.head_dim;
  return net.Saved(std::move(name), net.precision().activation,
                   {c.batch, heads, c.length, c.head_dim}, {c.length * row, c.head_dim, row, 1});
}

ValueId SplitHeads(LayerBackward& net, const Config& c, ValueId rows, int64_t heads) {
  GraphBuilder& graph = net.graph();
  return graph.Permute(graph.Reshape(rows, {c.batch, c.length, heads, c.head_dim}), {0, 2, 1, 3});
}

ValueId MergeHeads(LayerBackward& net, const Config& c, ValueId heads, int64_t count) {
  GraphBuilder& graph = net.graph();
  return graph.Reshape(graph.Permute(heads, {0, 2, 1, 3}), {c.rows(), count * c.head_dim});
}

// q, k, v = h Wqᵀ, h Wkᵀ, h Wvᵀ;  o = softmax(q kᵀ / √head_dim) v per head;  r = o Woᵀ
//   ⇒  do = dr Wo;  dq, dk, dv = attention_backward(do, ..);  dh = dq Wq + dk Wk + dv Wv
ValueId AttentionBackward(LayerBackward& net, const Config& c, const std::string& name, ValueId dr,
                          ValueId h) {
  GraphBuilder& graph = net.graph();
  const ValueId q = SavedHeads(net, c, name + ".q_heads", c.heads);
  const ValueId k = SavedHeads(net, c, name + ".k_heads", c.kv_heads);
  const ValueId v = SavedHeads(net, c, name + ".v_heads", c.kv_heads);
  const ValueId o = SavedHeads(net, c, name + ".o_heads", c.heads);
  const ValueId lse =
      net.Saved(name + ".logsumexp", net.precision().compute, {c.batch, c.heads, c.length});

  const ValueId do_rows =
      net.Linear(name + ".o", dr, MergeHeads(net, c, o, c.heads), c.width, c.bias);
  net.From("attention_backward", name);
  const double scale = 1 / std::sqrt(static_cast<double>(c.head_dim));
  const ValueId d =
      graph.Add(Op::attention_backward, {SplitHeads(net, c, do_rows, c.heads), q, k, v, o, lse},
                {{"causal", int64_t{c.causal}}, {"scale", scale}});
  const ValueId dq = MergeHeads(net, c, {d.node, 0}, c.heads);
  const ValueId dk = MergeHeads(net, c, {d.node, 1}, c.kv_heads);
  const ValueId dv = MergeHeads(net, c, {d.node, 2}, c.kv_heads);
  const int64_t kv_width = c.kv_heads * c.head_dim;
  const ValueId from_q = net.Linear(name + ".q", dq, h, c.width, c.bias);
  const ValueId from_k = net.Linear(name + ".k", dk, h, kv_width, c.bias);
  const ValueId from_v = net.Linear(name + ".v", dv, h, kv_width, c.bias);
  return net.Accumulate(name, net.Accumulate(name, from_q, from_k), from_v);
}

// a = h W₁ᵀ,  g = f(a),  r = g W₂ᵀ  ⇒  dg = dr W₂,  da = f'(a) dg,  dh = da W₁
ValueId MlpBackward(LayerBackward& net, const Config& c, const std::string& name, ValueId dr,
                    ValueId h) {
  const DType dtype = net.precision().activation;
  const ValueId g = net.Saved(name + ".g", dtype, {c.rows(), c.ff});
  const ValueId a = c.mlp == "relu" ? g : net.Saved(name + ".a", dtype, {c.rows(), c.ff});
  const ValueId dg = net.Linear(name + ".down", dr, g, c.width, c.bias);
  const ValueId da = net.Activation(name + ".act", c.mlp, dg, a);
  return net.Linear(name + ".up", da, h, c.ff, c.bias);
}

// a = h Wgᵀ,  u = h Wuᵀ,  g = silu(a) u,  r = g Wdᵀ
//   ⇒  dg = dr Wd,  du = dg silu(a),  da = silu'(a) (dg u),  dh = da Wg + du Wu
ValueId SwigluBackward(LayerBackward& net, const Config& c, const std::string& name, ValueId dr,
                       ValueId h) {
  GraphBuilder& graph = net.graph();
  const DType dtype = net.precision().activation;
  const ValueId a = net.Saved(name + ".a", dtype, {c.rows(), c.ff});
  const ValueId u = net.Saved(name + ".u", dtype, {c.rows(), c.ff});
  net.From("silu", name + ".act");
  const ValueId silu = net.Mul(a, graph.Add(Op::sigmoid, {a}));
  const ValueId g = net.Mul(silu, u);  // cheaper to compute again than to keep
  const ValueId dg = net.Linear(name + ".down", dr, g, c.width, c.bias);
  net.From("mul_backward", name + ".act");
  const ValueId du = net.Mul(dg, silu);
  const ValueId dsilu = net.Mul(dg, u);
  const ValueId da = net.Activation(name + ".act", "silu", dsilu, a);
  const ValueId from_gate = net.Linear(name + ".gate", da, h, c.ff, c.bias);
  const ValueId from_up = net.Linear(name + ".up", du, h, c.ff, c.bias);
  return net.Accumulate(name, from_gate, from_up);
}

// x₁ = x + attention(norm₁(x)),  y = x₁ + mlp(norm₂(x₁))
//   ⇒  dx₁ = dy + norm₂_backward(mlp_backward(dy)),  dx = dx₁ +
//   norm₁_backward(attention_backward(dx₁))
ValueId BlockBackward(LayerBackward& net, const Config& c, const std::string& name, ValueId dy) {
  const DType dtype = net.precision().activation;
  const Shape shape = {c.rows(), c.width};
  const ValueId x1 = net.Saved(name + ".x1", dtype, shape);
  const ValueId h2 = net.Saved(name + ".h2", dtype, shape);
  const ValueId dh2 = c.mlp == "swiglu" ? SwigluBackward(net, c, name + ".mlp", dy, h2)
                                        : MlpBackward(net, c, name + ".mlp", dy, h2);
  const ValueId dx1 = net.Accumulate(name + ".mlp", dy, net.Norm(name + ".norm2", c.norm, dh2, x1));

  const ValueId x = net.Saved(name + ".x", dtype, shape);
  const ValueId h1 = net.Saved(name + ".h1", dtype, shape);
  const ValueId dh1 = AttentionBackward(net, c, name + ".attn", dx1, h1);
  return net.Accumulate(name + ".attn", dx1, net.Norm(name + ".norm1", c.norm, dh1, x));
}

// loss = -1/rows Σ_t logp[t, target_t],  logp = log_softmax(h Wᵀ)
//   ⇒  dlogp = -dloss/rows where the column is the target, else 0
ValueId HeadBackward(LayerBackward& net, const Config& c) {
  GraphBuilder& graph = net.graph();
  const DType compute = net.precision().compute;
  const ValueId dloss = net.Tangent("dloss", compute, {});
  const ValueId target = net.Saved("target", DType::kInt64, {c.rows()});
  const ValueId logp = net.Saved("logp", compute, {c.rows(), c.vocab});
  const ValueId h = net.Saved("head.h", net.precision().activation, {c.rows(), c.width});
  const ValueId x = net.Saved("head.x", net.precision().activation, {c.rows(), c.width});

  net.From("nll_loss_backward", "loss");
  const ValueId column = graph.Add(Op::iota, {},
                                   {{"axis", int64_t{0}},
                                    {"dtype", std::string(Name(DType::kInt64))},
                                    {"shape", std::vector<int64_t>{c.vocab}},
                                    {"start", int64_t{0}},
                                    {"step", int64_t{1}}});
  const ValueId hit = graph.Add(Op::eq, {graph.Reshape(target, {c.rows(), 1}), column});
  const ValueId each = net.Mul(dloss, graph.Full(-1.0 / static_cast<double>(c.rows()), compute));
  const ValueId dlogp = graph.Add(Op::where, {hit, each, graph.Full(0, compute)});
  net.From("log_softmax_backward", "loss");
  const ValueId dlogits =
      graph.Cast(graph.Add(Op::log_softmax_backward, {dlogp, logp}), net.precision().activation);
  const ValueId dh = net.Linear("head", dlogits, h, c.vocab, false);
  return net.Norm("norm", c.norm, dh, x);
}

// x[t] = E[token_t]  ⇒  dE[token_t] += dx[t]
void EmbeddingBackward(LayerBackward& net, const Config& c, ValueId dx) {
  GraphBuilder& graph = net.graph();
  const DType compute = net.precision().compute;
  const ValueId tokens = net.Saved("tokens", DType::kInt64, {c.rows()});
  net.From("embedding_backward", "embedding");
  const ValueId zero = graph.Full(0, compute, {c.vocab, c.width});
  graph.Output(
      graph.Add(Op::index_add, {zero, tokens, graph.Cast(dx, compute)}, {{"axis", int64_t{0}}}),
      "embedding.weight");
}

absl::StatusOr<BackwardGraph> BuildTransformer(const Parameters& p) {
  absl::StatusOr<Config> config = MakeConfig(p);
  if (!config.ok()) return config.status();
  const Config& c = *config;
  LayerBackward net(absl::StrCat("transformer:", p.Print()), PrecisionByName(p.Choice("dtype")));
  ValueId dx = c.vocab != 0 ? HeadBackward(net, c)
                            : net.Tangent("dy", net.precision().activation, {c.rows(), c.width});
  for (int64_t i = c.layers - 1; i >= 0; --i) {
    dx = BlockBackward(net, c, absl::StrCat("layers.", i), dx);
  }
  if (c.vocab != 0) {
    EmbeddingBackward(net, c, dx);
  } else {
    net.graph().Output(dx, "x");
  }
  return net.graph().Build();
}

}  // namespace

const Builder& TransformerBuilder() {
  static const auto* builder =
      new Builder{"transformer",
                  "pre-norm transformer blocks; vocab adds embedding, head and loss",
                  {{"layers", 2, 1, 20000, "blocks"},
                   {"d", 768, 1, 1 << 17, "width"},
                   {"tokens", 8192, 1, 1 << 24, "rows: batch x sequence length"},
                   {"seq", 0, 0, 1 << 24, "sequence length; 0: tokens, that is one sequence"},
                   {"heads", 12, 1, 1 << 12, "attention heads"},
                   {"kv_heads", 0, 0, 1 << 12, "key and value heads; 0: as many as heads"},
                   {"ff", 0, 0, 1 << 20, "width inside the MLP; 0: 4 d"},
                   {"vocab", 0, 0, 1 << 24, "tokens of the vocabulary; 0: blocks alone"},
                   {"norm", 0, 0, 0, "kind", {"rms", "layer"}},
                   {"mlp", 0, 0, 0, "kind", {"gelu", "gelu_tanh", "silu", "relu", "swiglu"}},
                   {"bias", 0, 0, 1, "1: linear layers have a bias"},
                   {"causal", 1, 0, 1, "1: a token attends to earlier ones alone"},
                   {"dtype", 0, 0, 0, "of activations", PrecisionChoices()}},
                  BuildTransformer};
  return *builder;
}

}  // namespace retrograd
