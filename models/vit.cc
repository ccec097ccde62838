// A vision transformer that classifies: patches as rows, a class token, pre-norm blocks.
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
  int64_t layers, width, patches, patch_width, classes;
  Heads heads;  // length: the class token and the patches
};

// q, k, v = the thirds of h Wᵀ + b;  r = o Woᵀ + bo
ValueId SelfAttentionBackward(LayerBackward& net, const Config& c, const std::string& name,
                              ValueId dr, ValueId h) {
  const SavedAttention saved = SaveAttention(net, c.heads, name);
  const ValueId o = MergeHeads(net, c.heads, saved.o, c.heads.heads);
  const ValueId do_rows = net.Linear(name + ".proj", dr, o, c.width, true);
  const AttentionGradients d = AttentionBackward(net, c.heads, name, saved, do_rows, false);
  const ValueId qkv = net.graph().Add(
      Op::cat,
      {MergeHeads(net, c.heads, d.q, c.heads.heads), MergeHeads(net, c.heads, d.k, c.heads.heads),
       MergeHeads(net, c.heads, d.v, c.heads.heads)},
      {{"axis", int64_t{1}}});
  return net.Linear(name + ".qkv", qkv, h, 3 * c.width, true);
}

// x₁ = x + attention(norm₁(x)),  y = x₁ + mlp(norm₂(x₁)),  mlp(h) = gelu(h W₁ᵀ + b₁) W₂ᵀ + b₂
ValueId BlockBackward(LayerBackward& net, const Config& c, const std::string& name, ValueId dy) {
  const DType dtype = net.precision().activation;
  const int64_t rows = c.heads.rows(), ff = 4 * c.width;
  const ValueId x1 = net.Saved(name + ".x1", dtype, {rows, c.width});
  const ValueId h2 = net.Saved(name + ".h2", dtype, {rows, c.width});
  const ValueId g = net.Saved(name + ".mlp.g", dtype, {rows, ff});
  const ValueId a = net.Saved(name + ".mlp.a", dtype, {rows, ff});
  const ValueId dg = net.Linear(name + ".mlp.fc2", dy, g, c.width, true);
  const ValueId da = net.Activation(name + ".mlp.act", "gelu", dg, a);
  const ValueId dh2 = net.Linear(name + ".mlp.fc1", da, h2, ff, true);
  const ValueId dx1 =
      net.Accumulate(name + ".mlp", dy, net.Norm(name + ".norm2", "layer", dh2, x1));

  const ValueId x = net.Saved(name + ".x", dtype, {rows, c.width});
  const ValueId h1 = net.Saved(name + ".h1", dtype, {rows, c.width});
  const ValueId dh1 = SelfAttentionBackward(net, c, name + ".attn", dx1, h1);
  return net.Accumulate(name + ".attn", dx1, net.Norm(name + ".norm1", "layer", dh1, x));
}

// logits = h₀ Wᵀ + b, where h₀ is the class token's row of norm(x)
//   ⇒  dh is dlogits W in the rows of class tokens and 0 in the others
ValueId HeadBackward(LayerBackward& net, const Config& c) {
  GraphBuilder& graph = net.graph();
  const DType dtype = net.precision().activation;
  const int64_t batch = c.heads.batch, length = c.heads.length;
  const ValueId dlogits = CrossEntropyBackward(net, batch, c.classes);
  const ValueId first = net.Saved("head.h", dtype, {batch, c.width});
  const ValueId dfirst = net.Linear("head", dlogits, first, c.classes, true);
  net.From("select_backward", "head");
  const ValueId dh = graph.Add(Op::pad, {graph.Reshape(dfirst, {batch, 1, c.width})},
                               {{"low", std::vector<int64_t>{0, 0, 0}},
                                {"high", std::vector<int64_t>{0, length - 1, 0}},
                                {"value", 0.0}});
  const ValueId x = net.Saved("norm.x", dtype, {c.heads.rows(), c.width});
  return net.Norm("norm", "layer", graph.Reshape(dh, {c.heads.rows(), c.width}), x);
}

// x = (class token, patches Wᵀ + b) + position. The patches' projection is the convolution whose
// stride is its window, as the matmul that it is.
void EmbeddingBackward(LayerBackward& net, const Config& c, ValueId dx) {
  GraphBuilder& graph = net.graph();
  const DType compute = net.precision().compute;
  const int64_t batch = c.heads.batch, length = c.heads.length;
  const ValueId patches =
      net.Saved("patches", net.precision().activation, {batch * c.patches, c.patch_width});
  net.From("add_backward", "pos_embed");
  const ValueId d = graph.Reshape(dx, {batch, length, c.width});
  graph.Output(graph.Sum(graph.Cast(d, compute), {0}), "pos_embed");
  const auto tokens = [&](int64_t begin, int64_t end) { return graph.Slice(d, 1, begin, end); };
  net.From("cat_backward", "cls_token");
  graph.Output(graph.Sum(graph.Cast(tokens(0, 1), compute), {0}), "cls_token");
  const ValueId dpatches = graph.Reshape(tokens(1, length), {batch * c.patches, c.width});
  net.LinearParameters("patch_embed", dpatches, patches, true);
}

absl::StatusOr<BackwardGraph> BuildVit(const Parameters& p) {
  const int64_t heads = p["heads"], width = p["d"], side = p["image"], patch = p["patch"];
  if (width % heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("model vit: d=", width, " is no multiple of heads=", heads));
  }
  if (side % patch != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("model vit: image=", side, " is no multiple of patch=", patch));
  }
  const int64_t patches = (side / patch) * (side / patch);
  const Config c = {p["layers"],  width,
                    patches,      3 * patch * patch,
                    p["classes"], {p["batch"], patches + 1, heads, heads, width / heads}};
  LayerBackward net(absl::StrCat("vit:", p.Print()), PrecisionByName(p.Choice("dtype")));
  ValueId dx = HeadBackward(net, c);
  for (int64_t i = c.layers - 1; i >= 0; --i) {
    dx = BlockBackward(net, c, absl::StrCat("blocks.", i), dx);
  }
  EmbeddingBackward(net, c, dx);
  net.graph().AbsentOutput("image");
  return net.graph().Build();
}

}  // namespace

// Default sizes: ViT-S/16, Touvron et al. 2021.
const Builder& VitBuilder() {
  static const auto* builder =
      new Builder{"vit",
                  "ViT-S/16 that classifies: class token, pre-norm blocks",
                  {{"layers", 12, 1, 20000, "blocks"},
                   {"d", 384, 1, 1 << 17, "width"},
                   {"heads", 6, 1, 1 << 12, "attention heads"},
                   {"batch", 128, 1, 1 << 16, "images"},
                   {"image", 224, 1, 1 << 12, "pixels of a side"},
                   {"patch", 16, 1, 1 << 10, "pixels of a patch's side"},
                   {"classes", 1000, 1, 1 << 24, "classes"},
                   {"dtype", 0, 0, 0, "of activations", PrecisionChoices()}},
                  BuildVit};
  return *builder;
}

}  // namespace retrograd
