// The builders' backward graphs against finite differences of their forward passes, in float64.
// A central difference of step h is wrong by about h² f''' and 1e-16 / h: with h = 1e-5 and values
// of order one, some 1e-9. A wrong formula is wrong by far more than the 1e-6 allowed here.
#include <cmath>
#include <functional>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "graph/reference/reference.h"
#include "models/models.h"
#include "tests/catch.h"
#include "tests/support/graphs/forward_models.h"

namespace retrograd {
namespace {

constexpr double kStep = 1e-5;
constexpr double kTolerance = 1e-6;
constexpr int kProbes = 8;  // elements of each gradient that are checked

using Loss = std::function<double(NamedTensors&)>;

// Every tensor that the forward reads: the graph's parameters and tangents by their inputs, what
// has no input in the backward (biases, the data) by the gradient that comes out.
NamedTensors RandomTensors(const BackwardGraph& graph, std::mt19937& random) {
  std::uniform_real_distribution<double> uniform(-1, 1);
  NamedTensors tensors;
  const auto fill = [&](const std::string& name, int64_t elements) {
    std::vector<double>& tensor = tensors[name];
    tensor.resize(elements);
    for (double& v : tensor) v = uniform(random);
  };
  for (NodeId id : InputNodes(graph)) {
    const InputInfo& info = *graph.node(id).input;
    if (info.kind != InputKind::kSaved) fill(info.name, graph.type(id).elements());
  }
  for (const GraphOutput& output : graph.outputs()) {
    if (output.value.has_value() && !tensors.contains(output.name)) {
      fill(output.name, graph.type(*output.value).elements());
    }
  }
  return tensors;
}

void AddRandomIndices(const std::string& name, int64_t count, int64_t end, std::mt19937& random,
                      NamedTensors& tensors) {
  std::uniform_int_distribution<int64_t> uniform(0, end - 1);
  for (int64_t i = 0; i < count; ++i) {
    tensors[name].push_back(static_cast<double>(uniform(random)));
  }
}

std::vector<Values> InputsByName(const BackwardGraph& graph, const NamedTensors& tensors) {
  std::vector<Values> inputs;
  for (NodeId id : InputNodes(graph)) {
    const std::string& name = graph.node(id).input->name;
    INFO(name);
    REQUIRE(tensors.contains(name));
    REQUIRE(static_cast<int64_t>(tensors.at(name).size()) == graph.type(id).elements());
    inputs.push_back(tensors.at(name));
  }
  return inputs;
}

double Difference(const Loss& loss, NamedTensors tensors, const std::string& name, size_t at) {
  const double value = tensors.at(name)[at];
  tensors.at(name)[at] = value + kStep;
  const double above = loss(tensors);
  tensors.at(name)[at] = value - kStep;
  return (above - loss(tensors)) / (2 * kStep);
}

void CheckGradients(const BackwardGraph& graph, const Loss& loss, NamedTensors tensors,
                    std::mt19937& random) {
  loss(tensors);  // writes what the backward reads
  const auto values = Evaluate(graph, InputsByName(graph, tensors));
  INFO(values.status());
  REQUIRE(values.ok());
  for (const GraphOutput& output : graph.outputs()) {
    if (!output.value.has_value()) continue;
    const Values& gradient = (*values)[graph.value_index(*output.value)];
    REQUIRE(gradient.size() == tensors.at(output.name).size());
    for (int probe = 0; probe < kProbes; ++probe) {
      const size_t at = random() % gradient.size();
      const double expected = Difference(loss, tensors, output.name, at);
      INFO("gradient of " << output.name << ", element " << at << ": " << gradient[at]
                          << ", finite difference " << expected);
      CHECK(std::abs(gradient[at] - expected) <= kTolerance * (1 + std::abs(expected)));
    }
  }
}

BackwardGraph MustBuild(const std::string& model) {
  absl::StatusOr<BackwardGraph> graph = BuildModel(model);
  INFO(graph.status());
  REQUIRE(graph.ok());
  return *std::move(graph);
}

TEST_CASE("an mlp's gradients are those of finite differences, for every activation") {
  const std::string act = GENERATE("gelu", "gelu_tanh", "silu", "relu");
  const bool bias = GENERATE(false, true);
  std::mt19937 random(11);
  const MlpSizes sizes = {3, 4, 3, 5, 2, act, bias};
  const std::string model =
      absl::StrCat("mlp:layers=3,tokens=4,in=3,hidden=5,out=2,dtype=fp64,act=", act,
                   ",bias=", static_cast<int>(bias));
  INFO(model << ", seed 11");
  const BackwardGraph graph = MustBuild(model);
  NamedTensors tensors = RandomTensors(graph, random);
  // The first layer's weight is no input: its gradient alone names it. The data has no gradient.
  for (int i = 0; i < 4 * 3; ++i) tensors["x"].push_back(std::sin(i + 1.0));
  CheckGradients(
      graph, [&](NamedTensors& t) { return MlpLoss(sizes, t); }, tensors, random);
}

TEST_CASE("a norm stack's gradients are those of finite differences") {
  const std::string norm = GENERATE("rms", "layer");
  const bool residual = GENERATE(false, true);
  std::mt19937 random(12);
  const NormStackSizes sizes = {3, 4, 6, norm, residual};
  const std::string model =
      absl::StrCat("norm_stack:layers=3,rows=4,columns=6,dtype=fp64,norm=", norm,
                   ",residual=", static_cast<int>(residual));
  INFO(model << ", seed 12");
  const BackwardGraph graph = MustBuild(model);
  CheckGradients(
      graph, [&](NamedTensors& t) { return NormStackLoss(sizes, t); }, RandomTensors(graph, random),
      random);
}

TEST_CASE("a transformer's gradients are those of finite differences") {
  struct Case {
    std::string norm, mlp;
    int64_t kv_heads, vocab;
    bool bias, causal;
  };
  const Case c =
      GENERATE(Case{"rms", "gelu", 2, 0, false, true}, Case{"layer", "gelu_tanh", 2, 0, true, true},
               Case{"rms", "swiglu", 1, 5, false, true}, Case{"layer", "relu", 1, 5, true, false},
               Case{"rms", "silu", 2, 5, false, false});
  std::mt19937 random(13);
  const TransformerSizes sizes = {2,  8,       2,      3,     2,      c.kv_heads,
                                  12, c.vocab, c.norm, c.mlp, c.bias, c.causal};
  const std::string model =
      absl::StrCat("transformer:layers=2,d=8,tokens=6,seq=3,heads=2,ff=12,dtype=fp64,norm=", c.norm,
                   ",mlp=", c.mlp, ",kv_heads=", c.kv_heads, ",vocab=", c.vocab,
                   ",bias=", static_cast<int>(c.bias), ",causal=", static_cast<int>(c.causal));
  INFO(model << ", seed 13");
  const BackwardGraph graph = MustBuild(model);
  NamedTensors tensors = RandomTensors(graph, random);
  if (c.vocab != 0) {
    AddRandomIndices("tokens", 6, c.vocab, random, tensors);
    AddRandomIndices("target", 6, c.vocab, random, tensors);
  }
  CheckGradients(
      graph, [&](NamedTensors& t) { return TransformerLoss(sizes, t); }, tensors, random);
}

TEST_CASE("a mixture of experts' gradients are those of finite differences") {
  struct Case {
    MoeSizes sizes;
    bool one_takes_all;
  };
  const Case c = GENERATE(Case{{5, 4, 2, 6, 3}, false}, Case{{5, 3, 1, 4, 5}, true},
                          Case{{4, 3, 3, 5, 4}, false}, Case{{3, 1, 1, 4, 2}, false});
  const MoeSizes& s = c.sizes;
  std::mt19937 random(14);
  const std::string model =
      absl::StrCat("moe:dtype=fp64,tokens=", s.tokens, ",experts=", s.experts, ",chosen=", s.chosen,
                   ",width=", s.width, ",inner=", s.inner);
  INFO(model << ", seed 14");
  const BackwardGraph graph = MustBuild(model);
  NamedTensors tensors = RandomTensors(graph, random);
  if (c.one_takes_all) {  // positive tokens, and a router that scores the second expert high
    for (double& v : tensors["x"]) v = std::abs(v) + 0.1;
    for (int64_t h = 0; h < s.width; ++h) tensors["router.weight"][s.width + h] += 4;
  }
  CheckGradients(
      graph, [&](NamedTensors& t) { return MoeLoss(s, t); }, tensors, random);
}

}  // namespace
}  // namespace retrograd
