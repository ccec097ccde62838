// The builders of real models at tiny sizes: what their programs compute on the host is what the
// reference evaluates, and each parameter's gradient has the parameter's shape.
#include <cmath>
#include <map>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "graph/reference/reference.h"
#include "models/models.h"
#include "tests/catch.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/plans/run_plan.h"

namespace retrograd {
namespace {

BackwardGraph MustBuild(const std::string& model) {
  absl::StatusOr<BackwardGraph> graph = BuildModel(model);
  INFO(graph.status());
  REQUIRE(graph.ok());
  return *std::move(graph);
}

// Random inputs; of a pooling window one of its nine places won, and the experts that a token
// chose are among the first three.
std::vector<Values> Inputs(const BackwardGraph& graph) {
  std::vector<Values> inputs = RandomInputs(graph, 5);
  const std::vector<NodeId> nodes = InputNodes(graph);
  for (size_t i = 0; i < nodes.size(); ++i) {
    const bool window = graph.type(nodes[i]).dtype == DType::kInt8;
    const bool expert = graph.node(nodes[i]).input->name == "router.chosen";
    if (!window && !expert) continue;
    for (double& value : inputs[i]) value = std::fmod(value, window ? 9 : 3);
  }
  return inputs;
}

const char* const kTiny[] = {
    "bert:layers=1,d=8,heads=2,batch=2,seq=3,vocab=7,dtype=fp32",
    "gpt2:layers=1,d=8,heads=2,batch=2,seq=3,vocab=7,dtype=fp32",
    "llama:layers=1,d=8,heads=2,kv_heads=1,batch=2,seq=3,ff=12,vocab=7,dtype=fp32",
    "vit:layers=1,d=8,heads=2,batch=2,image=4,patch=2,classes=5,dtype=fp32",
    "resnet:blocks1=1,blocks2=1,blocks3=1,blocks4=1,batch=2,image=32,width=4,classes=5,dtype=fp32",
    "moe:tokens=12,experts=4,chosen=2,width=8,inner=6,dtype=fp32",
    "moe:tokens=7,experts=3,chosen=1,width=5,inner=4,dtype=fp32",
};

TEST_CASE("real models at tiny sizes run on the host and give the reference's gradients") {
  const std::string model = GENERATE(from_range(std::begin(kTiny), std::end(kTiny)));
  INFO(model << ", inputs by seed 5");
  const BackwardGraph graph = MustBuild(model);
  const std::vector<Values> inputs = Inputs(graph);
  const auto run = RunOnHost(graph, inputs, {});
  INFO(run.status());
  REQUIRE(run.ok());
  const auto expected = Evaluate(graph, inputs);
  REQUIRE(expected.ok());
  for (size_t o = 0; o < graph.outputs().size(); ++o) {
    const GraphOutput& output = graph.outputs()[o];
    if (!output.value.has_value()) continue;
    const Values& want = (*expected)[graph.value_index(*output.value)];
    double largest = 1e-30, error = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      largest = std::max(largest, std::abs(want[i]));
      const double difference = std::abs(run->outputs[o][i] - want[i]);
      error = difference <= error ? error : difference;  // keeps a NaN
    }
    INFO(output.name << ": error " << error << " of " << largest);
    CHECK(error <= 2e-5 * largest);
  }
}

TEST_CASE("a parameter's gradient has the parameter's shape, at the models' own sizes") {
  for (const char* const model : {"bert", "gpt2", "llama", "vit", "resnet", "moe"}) {
    INFO(model);
    const BackwardGraph graph = MustBuild(model);
    std::map<std::string, Shape> parameters;
    for (NodeId id : InputNodes(graph)) {
      const InputInfo& info = *graph.node(id).input;
      if (info.kind == InputKind::kParameter) parameters[info.name] = graph.type(id).shape;
    }
    size_t found = 0;
    for (const GraphOutput& output : graph.outputs()) {
      const auto parameter = parameters.find(output.name);
      if (!output.value.has_value() || parameter == parameters.end()) continue;
      INFO(output.name);
      CHECK(graph.type(*output.value).shape == parameter->second);
      CHECK(graph.type(*output.value).dtype == DType::kFp32);
      ++found;
    }
    CHECK(found == parameters.size());
  }
}

TEST_CASE("the models have the sizes of those that they are named after") {
  const auto parameters = [](const BackwardGraph& graph) {
    int64_t count = 0;
    for (const GraphOutput& output : graph.outputs()) {
      if (output.value.has_value() && !absl::EndsWith(output.name, ".dy")) {
        count += graph.type(*output.value).elements();
      }
    }
    return count;
  };
  CHECK(parameters(MustBuild("bert")) == 109514298);
  CHECK(parameters(MustBuild("gpt2")) == 124439808);
  CHECK(parameters(MustBuild("llama")) == 1235814400);
  CHECK(parameters(MustBuild("vit")) == 22050664);
  // 25,557,032 less the 3x3 and 7x7 convolutions, which lie outside the graph.
  CHECK(parameters(MustBuild("resnet")) == 25557032 - 11317248 - 9408);
}

}  // namespace
}  // namespace retrograd
