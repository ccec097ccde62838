// Pre-norm transformer blocks, as GPT and Llama have them, with or without embedding and loss.
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "models/attention.h"
#include "models/builders.h"
#include "models/classifier.h"
#include "models/layers.h"

namespace retrograd {
namespace {

struct Config {
  int64_t layers, width, ff, vocab;
  Heads heads;
  absl::string_view norm, mlp;
  bool bias, causal;

  int64_t rows() const { return heads.rows(); }
};

absl::StatusOr<Config> MakeConfig(const Parameters& p) {
  Config c{};
  c.layers = p["layers"];
  Heads& h = c.heads;
  h.length = p["seq"] != 0 ? p["seq"] : p["tokens"];
  h.heads = p["heads"];
  h.kv_heads = p["kv_heads"] != 0 ? p["kv_heads"] : h.heads;
  c.width = p["d"];
  c.ff = p["ff"] != 0 ? p["ff"] : 4 * c.width;
  c.vocab = p["vocab"];
  c.norm = p.Choice("norm");
  c.mlp = p.Choice("mlp");
  c.bias = p["bias"] != 0;
  c.causal = p["causal"] != 0;
  if (c.width % h.heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("model transformer: d=", c.width, " is no multiple of heads=", h.heads));
  }
  if (h.heads % h.kv_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat("model transformer: heads=", h.heads,
                                                   " is no multiple of kv_heads=", h.kv_heads));
  }
  if (p["tokens"] % h.length != 0) {
    return absl::InvalidArgumentError(absl::StrCat("model transformer: tokens=", p["tokens"],
                                                   " is no multiple of seq=", h.length));
  }
  h.batch = p["tokens"] / h.length;
  h.head_dim = c.width / h.heads;
  return c;
}

// q, k, v = h Wqᵀ, h Wkᵀ, h Wvᵀ;  o = softmax(q kᵀ / √head_dim) v per head;  r = o Woᵀ
//   ⇒  do = dr Wo;  dq, dk, dv = attention_backward(do, ..);  dh = dq Wq + dk Wk + dv Wv
ValueId SelfAttentionBackward(LayerBackward& net, const Config& c, const std::string& name,
                              ValueId dr, ValueId h) {
  const SavedAttention saved = SaveAttention(net, c.heads, name);
  const ValueId do_rows = net.Linear(
      name + ".o", dr, MergeHeads(net, c.heads, saved.o, c.heads.heads), c.width, c.bias);
  const AttentionGradients d = AttentionBackward(net, c.heads, name, saved, do_rows, c.causal);
  const ValueId dq = MergeHeads(net, c.heads, d.q, c.heads.heads);
  const ValueId dk = MergeHeads(net, c.heads, d.k, c.heads.kv_heads);
  const ValueId dv = MergeHeads(net, c.heads, d.v, c.heads.kv_heads);
  const ValueId from_q = net.Linear(name + ".q", dq, h, c.width, c.bias);
  const ValueId from_k = net.Linear(name + ".k", dk, h, c.heads.kv_width(), c.bias);
  const ValueId from_v = net.Linear(name + ".v", dv, h, c.heads.kv_width(), c.bias);
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

// x₁ = x + attention(norm₁(x)),  y = x₁ + mlp(norm₂(x₁))
//   ⇒  dx₁ = dy + norm₂_backward(mlp_backward(dy)),  dx = dx₁ +
//   norm₁_backward(attention_backward(dx₁))
ValueId BlockBackward(LayerBackward& net, const Config& c, const std::string& name, ValueId dy) {
  const DType dtype = net.precision().activation;
  const Shape shape = {c.rows(), c.width};
  const ValueId x1 = net.Saved(name + ".x1", dtype, shape);
  const ValueId h2 = net.Saved(name + ".h2", dtype, shape);
  const ValueId dh2 = c.mlp == "swiglu" ? net.Swiglu(name + ".mlp", dy, h2, c.ff, c.bias)
                                        : MlpBackward(net, c, name + ".mlp", dy, h2);
  const ValueId dx1 = net.Accumulate(name + ".mlp", dy, net.Norm(name + ".norm2", c.norm, dh2, x1));

  const ValueId x = net.Saved(name + ".x", dtype, shape);
  const ValueId h1 = net.Saved(name + ".h1", dtype, shape);
  const ValueId dh1 = SelfAttentionBackward(net, c, name + ".attn", dx1, h1);
  return net.Accumulate(name + ".attn", dx1, net.Norm(name + ".norm1", c.norm, dh1, x));
}

ValueId HeadBackward(LayerBackward& net, const Config& c) {
  const ValueId dlogits = CrossEntropyBackward(net, c.rows(), c.vocab);
  const ValueId h = net.Saved("head.h", net.precision().activation, {c.rows(), c.width});
  const ValueId x = net.Saved("head.x", net.precision().activation, {c.rows(), c.width});
  const ValueId dh = net.Linear("head", dlogits, h, c.vocab, false);
  return net.Norm("norm", c.norm, dh, x);
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
    net.graph().Output(EmbeddingGradient(net, "embedding", "tokens", c.vocab, dx),
                       "embedding.weight");
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
