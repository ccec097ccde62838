// The nodes that each layer of layers.hpp adds, as graphs in tests/api/layers/. The Python layers
// must add the same ones, and PyTorch gives their values (python/tests/package/test_native.py).
// RETROGRAD_REWRITE_GOLDEN=1 writes the files; review the diff.
#include "include/retrograd/layers.hpp"

#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>

#include "tests/catch.h"

namespace {

using retrograd::Builder;
using retrograd::DType;
using retrograd::Value;
namespace layers = retrograd::layers;

Value In(Builder& b, const char* name, std::vector<int64_t> shape, DType dtype = DType::kFp64) {
  return b.Input({.name = name, .dtype = dtype, .shape = std::move(shape)});
}

void LinearLayer(Builder& b) {
  const Value x = In(b, "x", {5, 3}), w = In(b, "w", {4, 3}), bias = In(b, "bias", {4});
  const Value dy = In(b, "dy", {5, 4});
  b.Output(layers::Linear(b, x, w, bias), "y");
  const layers::LinearGradients d = layers::LinearBackward(b, dy, x, w);
  b.Output(d.dx, "dx");
  b.Output(d.dw, "dw");
  b.Output(d.dbias, "dbias");
}

using Forward = Value (*)(Builder&, Value);
using Backward = Value (*)(Builder&, Value, Value);

// A layer of one operand, whose backward reads its operand or its result.
template <Forward forward, Backward backward, bool reads_result>
void Pointwise(Builder& b) {
  const Value x = In(b, "x", {5, 6}), dy = In(b, "dy", {5, 6});
  const Value y = forward(b, x);
  b.Output(y, "y");
  b.Output(backward(b, dy, reads_result ? y : x), "dx");
}

void LayerNormLayer(Builder& b) {
  const Value x = In(b, "x", {5, 6}), w = In(b, "w", {6}), bias = In(b, "bias", {6});
  const Value dy = In(b, "dy", {5, 6});
  const layers::LayerNormResult made = layers::LayerNorm(b, x, w, bias);
  b.Output(made.y, "y");
  const auto d = layers::LayerNormBackward(b, dy, x, made.mean, made.rstd, w);
  b.Output(d.dx, "dx");
  b.Output(d.dw, "dw");
  b.Output(d.dbias, "dbias");
}

void RmsNormLayer(Builder& b) {
  const Value x = In(b, "x", {5, 6}), w = In(b, "w", {6}), dy = In(b, "dy", {5, 6});
  const layers::RmsNormResult made = layers::RmsNorm(b, x, w);
  b.Output(made.y, "y");
  const layers::NormGradients d = layers::RmsNormBackward(b, dy, x, made.rstd, w);
  b.Output(d.dx, "dx");
  b.Output(d.dw, "dw");
}

void CrossEntropyLayer(Builder& b) {
  const Value x = In(b, "x", {5, 7}), labels = In(b, "labels", {5}, DType::kInt64);
  const layers::CrossEntropyResult made = layers::SoftmaxCrossEntropy(b, x, labels);
  b.Output(made.loss, "y");
  b.Output(layers::SoftmaxCrossEntropyBackward(b, made.log_probabilities, labels), "dx");
}

void AttentionLayer(Builder& b) {
  const Value q = In(b, "q", {2, 3, 5, 4}), k = In(b, "k", {2, 3, 6, 4}),
              v = In(b, "v", {2, 3, 6, 4}), dy = In(b, "dy", {2, 3, 5, 4});
  const layers::AttentionResult made = layers::Attention(b, q, k, v, 0.5);
  b.Output(made.y, "y");
  const auto d = layers::AttentionBackward(b, dy, q, k, v, made.probabilities, 0.5);
  b.Output(d.dq, "dq");
  b.Output(d.dk, "dk");
  b.Output(d.dv, "dv");
}

void SgdUpdate(Builder& b) {
  const Value p = In(b, "p", {5, 6}), g = In(b, "g", {5, 6});
  b.Output(layers::Sgd(b, p, g, 0.1), "p");
}

void AdamUpdate(Builder& b) {
  const Value p = In(b, "p", {5, 6}), g = In(b, "g", {5, 6}), m = In(b, "m", {5, 6}),
              v = In(b, "v", {5, 6}), step = In(b, "step", {});
  const layers::AdamResult next = layers::Adam(b, p, g, m, v, step, {.rate = 0.01});
  b.Output(next.p, "p");
  b.Output(next.m, "m");
  b.Output(next.v, "v");
}

struct Layer {
  const char* name;
  void (*add)(Builder&);
};
constexpr Layer kLayers[] = {
    {"linear", LinearLayer},
    {"relu", Pointwise<layers::Relu, layers::ReluBackward, true>},
    {"gelu", Pointwise<layers::Gelu, layers::GeluBackward, false>},
    {"silu", Pointwise<layers::Silu, layers::SiluBackward, false>},
    {"softmax", Pointwise<layers::Softmax, layers::SoftmaxBackward, true>},
    {"layer_norm", LayerNormLayer},
    {"rms_norm", RmsNormLayer},
    {"softmax_cross_entropy", CrossEntropyLayer},
    {"attention", AttentionLayer},
    {"sgd", SgdUpdate},
    {"adam", AdamUpdate},
};

TEST_CASE("each layer adds the nodes that its file shows") {
  for (const Layer& layer : kLayers) {
    INFO(layer.name);
    Builder b(layer.name);
    layer.add(b);
    const auto graph = b.Finish();
    INFO(graph.error().message);
    REQUIRE(graph.ok());
    const std::string path =
        std::string(RETROGRAD_SOURCE_DIR "/tests/api/layers/") + layer.name + ".rgt";
    if (std::getenv("RETROGRAD_REWRITE_GOLDEN") != nullptr) {
      REQUIRE(graph->Save(path).ok());
    }
    std::ifstream file(path);
    std::stringstream expected;
    expected << file.rdbuf();
    CHECK(*graph->Print() == expected.str());
  }
}

TEST_CASE("layers of wrong ranks are errors of the builder, not of the process") {
  Builder b("wrong");
  const Value x = In(b, "x", {5}), labels = In(b, "labels", {5}, DType::kInt64);
  layers::SoftmaxCrossEntropy(b, x, labels);
  const auto graph = b.Finish();
  CHECK(graph.error().code == RG_INVALID_ARGUMENT);
  CHECK_THAT(graph.error().message, ContainsSubstring("[rows, classes]"));
}

}  // namespace
