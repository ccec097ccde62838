// A stack of linear layers with an activation between them.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "models/builders.h"
#include "models/layers.h"

namespace retrograd {
namespace {

// h₀ = x,  aᵢ = hᵢ Wᵢᵀ + bᵢ,  hᵢ₊₁ = f(aᵢ),  y = a of the last layer
//   ⇒  da = dy;  for i downwards: dWᵢ, dbᵢ from daᵢ and hᵢ;  daᵢ₋₁ = f'(aᵢ₋₁) (daᵢ Wᵢ)
absl::StatusOr<BackwardGraph> BuildMlp(const Parameters& p) {
  const int64_t layers = p["layers"], rows = p["tokens"], hidden = p["hidden"];
  const absl::string_view activation = p.Choice("act");
  const bool bias = p["bias"] != 0;
  LayerBackward net(absl::StrCat("mlp:", p.Print()), PrecisionByName(p.Choice("dtype")));
  const DType dtype = net.precision().activation;
  const auto width = [&](int64_t layer) {  // features that go into a layer
    return layer == 0 ? p["in"] : layer == layers ? p["out"] : hidden;
  };

  ValueId da = net.Tangent("dy", dtype, {rows, p["out"]});
  for (int64_t i = layers - 1; i >= 0; --i) {
    const std::string name = absl::StrCat("layers.", i);
    const ValueId h = net.Saved(name + ".h", dtype, {rows, width(i)});
    if (i == 0) {
      net.LinearParameters(name, da, h, bias);
      break;
    }
    const ValueId dh = net.Linear(name, da, h, width(i + 1), bias);
    // relu saves its result, which is this layer's input; the others save what they were given.
    const ValueId saved = activation == "relu" ? h
                                               : net.Saved(absl::StrCat("layers.", i - 1, ".a"),
                                                           dtype, {rows, width(i)});
    da = net.Activation(absl::StrCat("layers.", i - 1, ".act"), activation, dh, saved);
  }
  net.graph().AbsentOutput("x");  // nobody asks for the gradient of the data
  return net.graph().Build();
}

}  // namespace

const Builder& MlpBuilder() {
  static const auto* builder =
      new Builder{"mlp",
                  "linear layers with an activation between them",
                  {{"layers", 3, 1, 100000, "linear layers"},
                   {"tokens", 8192, 1, 1 << 24, "rows of the batch"},
                   {"in", 1024, 1, 1 << 20, "features of the data"},
                   {"hidden", 4096, 1, 1 << 20, "features between layers"},
                   {"out", 1024, 1, 1 << 20, "features of the result"},
                   {"act", 0, 0, 0, "activation", {"gelu", "gelu_tanh", "silu", "relu"}},
                   {"bias", 1, 0, 1, "1: layers have a bias"},
                   {"dtype", 0, 0, 0, "of activations", PrecisionChoices()}},
                  BuildMlp};
  return *builder;
}

}  // namespace retrograd
