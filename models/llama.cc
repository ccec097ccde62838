// Llama: RMS norms, rotary positions, grouped key and value heads, SwiGLU, tied embedding.
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
};

// The cosines and sines of the positions, [length, head_dim], shared by all blocks.
struct Rotary {
  ValueId cos, sin;
};

// y = x cos + rotate(x) sin, where rotate((a, b)) = (-b, a) on the halves of the last axis
//   ⇒  dx = dy cos + rotateᵀ(dy sin),  rotateᵀ((a, b)) = (b, -a)
ValueId RotaryBackward(LayerBackward& net, const Rotary& rotary, const std::string& module,
                       ValueId dy) {
  GraphBuilder& graph = net.graph();
  const int64_t width = graph.type(dy).shape[3], half = width / 2;
  const auto part = [&](ValueId v, int64_t begin, int64_t end) {
    return graph.Slice(v, 3, begin, end);
  };
  net.From("rotary_backward", module);
  const ValueId turned = net.Mul(dy, rotary.sin);
  const ValueId a = part(turned, 0, half), b = part(turned, half, width);
  const ValueId back = graph.Cat({b, graph.Add(Op::neg, {a})}, 3);
  return graph.Add(Op::add, {net.Mul(dy, rotary.cos), back});
}

ValueId SelfAttentionBackward(LayerBackward& net, const Config& c, const Rotary& rotary,
                              const std::string& name, ValueId dr, ValueId h) {
  const Heads& heads = c.heads;
  const SavedAttention saved = SaveAttention(net, heads, name);  // q and k as rotated
  const ValueId o = MergeHeads(net, heads, saved.o, heads.heads);
  const ValueId do_rows = net.Linear(name + ".o_proj", dr, o, c.width, false);
  const AttentionGradients d = AttentionBackward(net, heads, name, saved, do_rows, true);
  const ValueId dq =
      MergeHeads(net, heads, RotaryBackward(net, rotary, name + ".q_rotary", d.q), heads.heads);
  const ValueId dk =
      MergeHeads(net, heads, RotaryBackward(net, rotary, name + ".k_rotary", d.k), heads.kv_heads);
  const ValueId dv = MergeHeads(net, heads, d.v, heads.kv_heads);
  const ValueId from_q = net.Linear(name + ".q_proj", dq, h, heads.width(), false);
  const ValueId from_k = net.Linear(name + ".k_proj", dk, h, heads.kv_width(), false);
  const ValueId from_v = net.Linear(name + ".v_proj", dv, h, heads.kv_width(), false);
  return net.Accumulate(name, net.Accumulate(name, from_q, from_k), from_v);
}

// x₁ = x + attention(norm₁(x)),  y = x₁ + swiglu(norm₂(x₁))
ValueId BlockBackward(LayerBackward& net, const Config& c, const Rotary& rotary,
                      const std::string& name, ValueId dy) {
  const DType dtype = net.precision().activation;
  const Shape shape = {c.heads.rows(), c.width};
  const ValueId x1 = net.Saved(name + ".x1", dtype, shape);
  const ValueId h2 = net.Saved(name + ".h2", dtype, shape);
  const ValueId dh2 = net.Swiglu(name + ".mlp", dy, h2, c.ff, false);
  const ValueId dx1 =
      net.Accumulate(name + ".mlp", dy, net.Norm(name + ".post_attention_norm", "rms", dh2, x1));

  const ValueId x = net.Saved(name + ".x", dtype, shape);
  const ValueId h1 = net.Saved(name + ".h1", dtype, shape);
  const ValueId dh1 = SelfAttentionBackward(net, c, rotary, name + ".self_attn", dx1, h1);
  return net.Accumulate(name + ".self_attn", dx1, net.Norm(name + ".input_norm", "rms", dh1, x));
}

absl::StatusOr<Config> MakeConfig(const Parameters& p) {
  const int64_t heads = p["heads"], kv_heads = p["kv_heads"], width = p["d"];
  if (width % (2 * heads) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("model llama: d=", width, " is no multiple of 2 x heads=", heads,
                     "; rotary positions turn the two halves of a head"));
  }
  if (heads % kv_heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("model llama: heads=", heads, " is no multiple of kv_heads=", kv_heads));
  }
  return Config{p["layers"],
                width,
                p["ff"],
                p["vocab"],
                {p["batch"], p["seq"], heads, kv_heads, width / heads}};
}

absl::StatusOr<BackwardGraph> BuildLlama(const Parameters& p) {
  absl::StatusOr<Config> config = MakeConfig(p);
  if (!config.ok()) return config.status();
  const Config& c = *config;
  LayerBackward net(absl::StrCat("llama:", p.Print()), PrecisionByName(p.Choice("dtype")));
  GraphBuilder& graph = net.graph();
  const DType dtype = net.precision().activation;
  const Shape shape = {c.heads.rows(), c.width};
  const Shape positions = {c.heads.length, c.heads.head_dim};
  const Rotary rotary = {net.Saved("rotary.cos", dtype, positions),
                         net.Saved("rotary.sin", dtype, positions)};

  // logits = norm(x) Eᵀ, and x₀ = E[token]: both ends add to dE.
  const ValueId dlogits = CrossEntropyBackward(net, c.heads.rows(), c.vocab);
  const ValueId h = net.Saved("norm.h", dtype, shape);
  const ValueId e = net.Parameter("embed_tokens.weight", dtype, {c.vocab, c.width});
  net.From("linear_backward", "lm_head");
  const ValueId dh = graph.MatMul(dlogits, e);
  const ValueId de =
      graph.Cast(graph.MatMul(graph.Permute(dlogits, {1, 0}), h), net.precision().compute);
  ValueId dx = net.Norm("norm", "rms", dh, net.Saved("norm.x", dtype, shape));
  for (int64_t i = c.layers - 1; i >= 0; --i) {
    dx = BlockBackward(net, c, rotary, absl::StrCat("layers.", i), dx);
  }
  const ValueId tokens = EmbeddingGradient(net, "embed_tokens", "tokens", c.vocab, dx);
  graph.Output(net.Accumulate("embed_tokens", de, tokens), "embed_tokens.weight");
  return graph.Build();
}

}  // namespace

// Default sizes: Llama 3.2 1B.
const Builder& LlamaBuilder() {
  static const auto* builder = new Builder{
      "llama",
      "Llama 3.2 1B: RMS norms, rotary positions, grouped heads, SwiGLU, tied embedding",
      {{"layers", 16, 1, 20000, "blocks"},
       {"d", 2048, 2, 1 << 17, "width"},
       {"heads", 32, 1, 1 << 12, "attention heads"},
       {"kv_heads", 8, 1, 1 << 12, "key and value heads"},
       {"batch", 2, 1, 1 << 16, "sequences"},
       {"seq", 2048, 1, 1 << 20, "tokens of a sequence"},
       {"ff", 8192, 1, 1 << 20, "width inside the MLP"},
       {"vocab", 128256, 1, 1 << 24, "tokens of the vocabulary"},
       {"dtype", 0, 0, 0, "of activations", PrecisionChoices()}},
      BuildLlama};
  return *builder;
}

}  // namespace retrograd
