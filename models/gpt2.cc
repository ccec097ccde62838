// GPT-2: pre-norm blocks with one projection for q, k and v, weights stored as [in, out], and a
// head that is the token embedding.
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

// y = x W + b, W: [in, out]  ⇒  dx = dy Wᵀ,  dW = xᵀ dy,  db = Σ_rows dy.
ValueId ProjectionBackward(LayerBackward& net, const std::string& name, ValueId dy, ValueId x) {
  GraphBuilder& graph = net.graph();
  const DType compute = net.precision().compute;
  const int64_t in = graph.type(x).shape[1], out = graph.type(dy).shape[1];
  const ValueId w = net.Parameter(name + ".weight", net.precision().activation, {in, out});
  net.From("addmm_backward", name);
  const ValueId dx = graph.MatMul(dy, graph.Permute(w, {1, 0}));
  graph.Output(graph.Cast(graph.MatMul(graph.Permute(x, {1, 0}), dy), compute), name + ".weight");
  graph.Output(graph.Sum(graph.Cast(dy, compute), {0}), name + ".bias");
  return dx;
}

// q, k, v = the thirds of h W + b;  r = o Wo + bo
ValueId SelfAttentionBackward(LayerBackward& net, const Config& c, const std::string& name,
                              ValueId dr, ValueId h) {
  const SavedAttention saved = SaveAttention(net, c.heads, name);
  const ValueId o = MergeHeads(net, c.heads, saved.o, c.heads.heads);
  const ValueId do_rows = ProjectionBackward(net, name + ".c_proj", dr, o);
  const AttentionGradients d = AttentionBackward(net, c.heads, name, saved, do_rows, true);
  const ValueId qkv = net.graph().Add(
      Op::cat,
      {MergeHeads(net, c.heads, d.q, c.heads.heads), MergeHeads(net, c.heads, d.k, c.heads.heads),
       MergeHeads(net, c.heads, d.v, c.heads.heads)},
      {{"axis", int64_t{1}}});
  return ProjectionBackward(net, name + ".c_attn", qkv, h);
}

// x₁ = x + attention(norm₁(x)),  y = x₁ + mlp(norm₂(x₁)),  mlp(h) = gelu(h W₁ + b₁) W₂ + b₂
ValueId BlockBackward(LayerBackward& net, const Config& c, const std::string& name, ValueId dy) {
  const DType dtype = net.precision().activation;
  const int64_t rows = c.heads.rows();
  const ValueId x1 = net.Saved(name + ".x1", dtype, {rows, c.width});
  const ValueId h2 = net.Saved(name + ".h2", dtype, {rows, c.width});
  const ValueId g = net.Saved(name + ".mlp.g", dtype, {rows, c.ff});
  const ValueId a = net.Saved(name + ".mlp.a", dtype, {rows, c.ff});
  const ValueId dg = ProjectionBackward(net, name + ".mlp.c_proj", dy, g);
  const ValueId da = net.Activation(name + ".mlp.act", "gelu_tanh", dg, a);
  const ValueId dh2 = ProjectionBackward(net, name + ".mlp.c_fc", da, h2);
  const ValueId dx1 = net.Accumulate(name + ".mlp", dy, net.Norm(name + ".ln_2", "layer", dh2, x1));

  const ValueId x = net.Saved(name + ".x", dtype, {rows, c.width});
  const ValueId h1 = net.Saved(name + ".h1", dtype, {rows, c.width});
  const ValueId dh1 = SelfAttentionBackward(net, c, name + ".attn", dx1, h1);
  return net.Accumulate(name + ".attn", dx1, net.Norm(name + ".ln_1", "layer", dh1, x));
}

absl::StatusOr<BackwardGraph> BuildGpt2(const Parameters& p) {
  const int64_t heads = p["heads"], width = p["d"];
  if (width % heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("model gpt2: d=", width, " is no multiple of heads=", heads));
  }
  const Config c = {p["layers"],
                    width,
                    4 * width,
                    p["vocab"],
                    {p["batch"], p["seq"], heads, heads, width / heads}};
  LayerBackward net(absl::StrCat("gpt2:", p.Print()), PrecisionByName(p.Choice("dtype")));
  GraphBuilder& graph = net.graph();
  const DType dtype = net.precision().activation, compute = net.precision().compute;
  const Shape shape = {c.heads.rows(), c.width};

  // logits = norm(x) Eᵀ, and x₀ = E[token] + P[t]: both ends add to dE.
  const ValueId dlogits = CrossEntropyBackward(net, c.heads.rows(), c.vocab);
  const ValueId h = net.Saved("ln_f.h", dtype, shape);
  const ValueId e = net.Parameter("wte.weight", dtype, {c.vocab, c.width});
  net.From("linear_backward", "lm_head");
  const ValueId dh = graph.MatMul(dlogits, e);
  const ValueId de = graph.Cast(graph.MatMul(graph.Permute(dlogits, {1, 0}), h), compute);
  ValueId dx = net.Norm("ln_f", "layer", dh, net.Saved("ln_f.x", dtype, shape));
  for (int64_t i = c.layers - 1; i >= 0; --i) {
    dx = BlockBackward(net, c, absl::StrCat("h.", i), dx);
  }
  const ValueId tokens = EmbeddingGradient(net, "wte", "tokens", c.vocab, dx);
  graph.Output(net.Accumulate("wte", de, tokens), "wte.weight");
  net.From("embedding_backward", "wpe");
  const ValueId by_sequence =
      graph.Reshape(graph.Cast(dx, compute), {c.heads.batch, c.heads.length, c.width});
  graph.Output(graph.Sum(by_sequence, {0}), "wpe.weight");
  return graph.Build();
}

}  // namespace

// Default sizes: the 124M-parameter GPT-2, Radford et al. 2019.
const Builder& Gpt2Builder() {
  static const auto* builder =
      new Builder{"gpt2",
                  "GPT-2 of 124M parameters: one projection for q, k and v, tied embedding",
                  {{"layers", 12, 1, 20000, "blocks"},
                   {"d", 768, 1, 1 << 17, "width"},
                   {"heads", 12, 1, 1 << 12, "attention heads"},
                   {"batch", 8, 1, 1 << 16, "sequences"},
                   {"seq", 1024, 1, 1 << 20, "tokens of a sequence"},
                   {"vocab", 50257, 1, 1 << 24, "tokens of the vocabulary"},
                   {"dtype", 0, 0, 0, "of activations", PrecisionChoices()}},
                  BuildGpt2};
  return *builder;
}

}  // namespace retrograd
