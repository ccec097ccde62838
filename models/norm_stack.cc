// Normalisations one after the other: the backward whose fusion is hardest to price, alone.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "models/builders.h"
#include "models/layers.h"

namespace retrograd {
namespace {

// xᵢ₊₁ = norm(xᵢ)  ⇒  dxᵢ = norm_backward(dxᵢ₊₁, xᵢ);  with a residual, xᵢ₊₁ = xᵢ + norm(xᵢ), it
// gains the term dxᵢ₊₁.
absl::StatusOr<BackwardGraph> BuildNormStack(const Parameters& p) {
  const int64_t rows = p["rows"], columns = p["columns"];
  LayerBackward net(absl::StrCat("norm_stack:", p.Print()), PrecisionByName(p.Choice("dtype")));
  const DType dtype = net.precision().activation;

  ValueId dx = net.Tangent("dy", dtype, {rows, columns});
  for (int64_t i = p["layers"] - 1; i >= 0; --i) {
    const std::string name = absl::StrCat("norms.", i);
    const ValueId x = net.Saved(name + ".x", dtype, {rows, columns});
    const ValueId through_norm = net.Norm(name, p.Choice("norm"), dx, x);
    dx = p["residual"] != 0 ? net.Accumulate(name, dx, through_norm) : through_norm;
  }
  net.graph().Output(dx, "x");
  return net.graph().Build();
}

}  // namespace

const Builder& NormStackBuilder() {
  static const auto* builder =
      new Builder{"norm_stack",
                  "normalisations with weights, one after the other",
                  {{"layers", 1, 1, 100000, "norms"},
                   {"rows", 16384, 1, 1 << 24, "rows"},
                   {"columns", 4096, 1, 1 << 20, "features, normalised together"},
                   {"norm", 0, 0, 0, "kind", {"rms", "layer"}},
                   {"residual", 0, 0, 1, "1: each adds to its input"},
                   {"dtype", 0, 0, 0, "of activations", PrecisionChoices()}},
                  BuildNormStack};
  return *builder;
}

}  // namespace retrograd
