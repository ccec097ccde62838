// BERT for masked tokens: post-norm blocks, three embeddings summed and normalised, a prediction
// head whose decoder is the word embedding.
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

// y = norm(x + f(x))  ⇒  du = norm_backward(dy),  dx = du + f_backward(du); here f is attention
// with biases, whose result's gradient is du.
ValueId AttentionLayer(LayerBackward& net, const Config& c, const std::string& name, ValueId dy) {
  const DType dtype = net.precision().activation;
  const Shape shape = {c.heads.rows(), c.width};
  const ValueId du =
      net.Norm(name + ".output.norm", "layer", dy, net.Saved(name + ".u", dtype, shape));
  const ValueId x = net.Saved(name + ".x", dtype, shape);
  const SavedAttention saved = SaveAttention(net, c.heads, name);
  const ValueId o = MergeHeads(net, c.heads, saved.o, c.heads.heads);
  const ValueId do_rows = net.Linear(name + ".output.dense", du, o, c.width, true);
  const AttentionGradients d = AttentionBackward(net, c.heads, name, saved, do_rows, false);
  ValueId dx = du;
  const ValueId parts[] = {d.q, d.k, d.v};
  const char* const names[] = {".query", ".key", ".value"};
  for (int i = 0; i < 3; ++i) {
    const ValueId rows = MergeHeads(net, c.heads, parts[i], c.heads.heads);
    dx = net.Accumulate(name, dx, net.Linear(name + names[i], rows, x, c.width, true));
  }
  return dx;
}

// The same around a = x W₁ᵀ + b₁,  g = gelu(a),  f = g W₂ᵀ + b₂.
ValueId MlpLayer(LayerBackward& net, const Config& c, const std::string& name, ValueId dy) {
  const DType dtype = net.precision().activation;
  const int64_t rows = c.heads.rows();
  const ValueId du =
      net.Norm(name + ".output.norm", "layer", dy, net.Saved(name + ".u", dtype, {rows, c.width}));
  const ValueId x = net.Saved(name + ".x", dtype, {rows, c.width});
  const ValueId g = net.Saved(name + ".g", dtype, {rows, c.ff});
  const ValueId a = net.Saved(name + ".a", dtype, {rows, c.ff});
  const ValueId dg = net.Linear(name + ".output.dense", du, g, c.width, true);
  const ValueId da = net.Activation(name + ".act", "gelu", dg, a);
  return net.Accumulate(name, du, net.Linear(name + ".intermediate", da, x, c.ff, true));
}

// logits = norm(gelu(x Wᵀ + b)) Eᵀ + c. The word embedding E gains the decoder's share here.
struct HeadGradients {
  ValueId x, embedding;
};
HeadGradients HeadBackward(LayerBackward& net, const Config& c) {
  GraphBuilder& graph = net.graph();
  const DType dtype = net.precision().activation, compute = net.precision().compute;
  const Shape shape = {c.heads.rows(), c.width};
  const ValueId dlogits = CrossEntropyBackward(net, c.heads.rows(), c.vocab);
  const ValueId t = net.Saved("head.t", dtype, shape);
  const ValueId e = net.Parameter("embeddings.word.weight", dtype, {c.vocab, c.width});
  net.From("linear_backward", "head.decoder");
  const ValueId dt = graph.MatMul(dlogits, e);
  const ValueId de = graph.Cast(graph.MatMul(graph.Permute(dlogits, {1, 0}), t), compute);
  graph.Output(graph.Sum(graph.Cast(dlogits, compute), {0}), "head.decoder.bias");
  const ValueId dg = net.Norm("head.norm", "layer", dt, net.Saved("head.g", dtype, shape));
  const ValueId da = net.Activation("head.act", "gelu", dg, net.Saved("head.a", dtype, shape));
  const ValueId x = net.Saved("head.x", dtype, shape);
  return {net.Linear("head.dense", da, x, c.width, true), de};
}

// x = norm(word[token] + position[t] + type[segment])
void EmbeddingsBackward(LayerBackward& net, const Config& c, ValueId dx, ValueId de) {
  GraphBuilder& graph = net.graph();
  const DType compute = net.precision().compute;
  const ValueId sum =
      net.Saved("embeddings.sum", net.precision().activation, {c.heads.rows(), c.width});
  const ValueId d = graph.Cast(net.Norm("embeddings.norm", "layer", dx, sum), compute);
  const ValueId words = EmbeddingGradient(net, "embeddings.word", "tokens", c.vocab, d);
  graph.Output(net.Accumulate("embeddings.word", de, words), "embeddings.word.weight");
  graph.Output(EmbeddingGradient(net, "embeddings.token_type", "segments", 2, d),
               "embeddings.token_type.weight");
  net.From("embedding_backward", "embeddings.position");
  graph.Output(graph.Sum(graph.Reshape(d, {c.heads.batch, c.heads.length, c.width}), {0}),
               "embeddings.position.weight");
}

absl::StatusOr<BackwardGraph> BuildBert(const Parameters& p) {
  const int64_t heads = p["heads"], width = p["d"];
  if (width % heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("model bert: d=", width, " is no multiple of heads=", heads));
  }
  const Config c = {p["layers"],
                    width,
                    p["ff"] != 0 ? p["ff"] : 4 * width,
                    p["vocab"],
                    {p["batch"], p["seq"], heads, heads, width / heads}};
  LayerBackward net(absl::StrCat("bert:", p.Print()), PrecisionByName(p.Choice("dtype")));
  const HeadGradients head = HeadBackward(net, c);
  ValueId dx = head.x;
  for (int64_t i = c.layers - 1; i >= 0; --i) {
    const std::string name = absl::StrCat("layers.", i);
    dx = AttentionLayer(net, c, name + ".attention", MlpLayer(net, c, name + ".mlp", dx));
  }
  EmbeddingsBackward(net, c, dx, head.embedding);
  return net.graph().Build();
}

}  // namespace

// Default sizes: BERT-base, Devlin et al. 2018.
const Builder& BertBuilder() {
  static const auto* builder =
      new Builder{"bert",
                  "BERT-base for masked tokens: post-norm blocks, tied decoder",
                  {{"layers", 12, 1, 20000, "blocks"},
                   {"d", 768, 1, 1 << 17, "width"},
                   {"heads", 12, 1, 1 << 12, "attention heads"},
                   {"batch", 16, 1, 1 << 16, "sequences"},
                   {"seq", 512, 1, 1 << 20, "tokens of a sequence"},
                   {"ff", 0, 0, 1 << 20, "width inside the MLP; 0: 4 d"},
                   {"vocab", 30522, 1, 1 << 24, "tokens of the vocabulary"},
                   {"dtype", 0, 0, 0, "of activations", PrecisionChoices()}},
                  BuildBert};
  return *builder;
}

}  // namespace retrograd
