// Runs through the C interface of random graphs, some of whose outputs are added to what their
// memory holds, against the reference evaluator. RETROGRAD_ACCUMULATED_GRAPHS=n draws n graphs.
#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>

#include "graph/proto/proto.h"
#include "include/retrograd/retrograd.h"
#include "tests/catch.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/plans/compare_outputs.h"
#include "tests/support/plans/run_plan.h"

namespace retrograd {
namespace {

// Row-major where the host asks for nothing else.
std::vector<int64_t> StridesOf(const TensorType& type, const std::vector<int64_t>& asked) {
  return asked.empty() ? DenseStrides(type.shape) : asked;
}

// What a gradient's memory holds before a run, by element: small whole numbers, which add exactly.
Values Before(const TensorType& type, size_t output) {
  Values values(static_cast<size_t>(type.elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<double>((i * 7 + output * 3) % 11) - 5;
  }
  return values;
}

struct Executed {
  std::vector<Values> outputs;  // dense row-major; empty for an absent one
  std::string failed;           // empty: nothing did
};

std::string Message() {
  rg_error error = RG_INIT(rg_error);
  rg_last_error(&error);
  return error.message;
}

Executed Execute(const BackwardGraph& graph, const std::vector<Values>& inputs,
                 const std::vector<uint8_t>& accumulate, rg_device* device) {
  Executed executed;
  const std::string bytes = SerializeGraph(graph);
  rg_graph* loaded = nullptr;
  rg_executable* executable = nullptr;
  rg_executable_options options = RG_INIT(rg_executable_options);
  options.accumulate = accumulate.data();
  options.num_accumulate = accumulate.size();
  if (rg_graph_deserialize(bytes.data(), bytes.size(), &loaded) != RG_OK ||
      rg_executable_create(loaded, device, &options, &executable) != RG_OK) {
    executed.failed = Message();
    rg_graph_destroy(loaded);
    return executed;
  }
  std::vector<std::vector<char>> memory;
  std::vector<const void*> in;
  const std::vector<NodeId> nodes = InputNodes(graph);
  for (size_t i = 0; i < nodes.size(); ++i) {
    const TensorType& type = graph.type(nodes[i]);
    memory.push_back(Pack(type, StridesOf(type, graph.node(nodes[i]).input->strides), inputs[i]));
  }
  for (size_t o = 0; o < graph.outputs().size(); ++o) {
    const GraphOutput& output = graph.outputs()[o];
    memory.emplace_back();
    if (!output.value) continue;
    const TensorType& type = graph.type(*output.value);
    memory.back() = Pack(type, StridesOf(type, output.strides), Before(type, o));
  }
  for (size_t i = 0; i < nodes.size(); ++i) in.push_back(memory[i].data());
  std::vector<void*> out;
  for (size_t o = 0; o < graph.outputs().size(); ++o) {
    out.push_back(graph.outputs()[o].value ? memory[nodes.size() + o].data() : nullptr);
  }
  rg_run run = RG_INIT(rg_run);
  run.inputs = in.data();
  run.num_inputs = in.size();
  run.outputs = out.data();
  run.num_outputs = out.size();
  if (rg_executable_run(executable, &run) != RG_OK) executed.failed = Message();
  for (size_t o = 0; o < graph.outputs().size(); ++o) {
    const GraphOutput& output = graph.outputs()[o];
    executed.outputs.emplace_back();
    if (!output.value) continue;
    const TensorType& type = graph.type(*output.value);
    executed.outputs.back() =
        Unpack(type, StridesOf(type, output.strides), memory[nodes.size() + o]);
  }
  rg_executable_destroy(executable);
  rg_graph_destroy(loaded);
  return executed;
}

// What the run made is what it left, less what lay there where it accumulates. What the sum with up
// to 5 has rounded away is not looked for. `reference`: by value_index.
void TakeBefore(const BackwardGraph& graph, const std::vector<uint8_t>& accumulate,
                const std::vector<Values>& reference, std::vector<Values>& outputs) {
  constexpr double kRounded = 5 * std::numeric_limits<double>::epsilon();
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (accumulate[o] == 0 || !graph.outputs()[o].value) continue;
    const Values before = Before(graph.type(*graph.outputs()[o].value), o);
    const Values& right = reference[graph.value_index(*graph.outputs()[o].value)];
    for (size_t i = 0; i < before.size(); ++i) {
      outputs[o][i] -= before[i];
      if (std::abs(outputs[o][i] - right[i]) <= kRounded) outputs[o][i] = right[i];
    }
  }
}

TEST_CASE("any outputs of random graphs accumulate, and the others do not") {
  const char* text = std::getenv("RETROGRAD_ACCUMULATED_GRAPHS");
  const int graphs = text != nullptr ? std::atoi(text) : 6;
  const uint32_t first = std::random_device()();
  rg_device_options options = RG_INIT(rg_device_options);
  options.no_cache = 1;
  rg_device* device = nullptr;
  REQUIRE(rg_device_create(&options, &device) == RG_OK);
  for (int i = 0; i < graphs; ++i) {
    const uint32_t seed = first + static_cast<uint32_t>(i);
    INFO("seed " << seed);
    const BackwardGraph graph =
        RandomGraph(seed, {.dtypes = RandomGraphOptions::kFp64, .max_ops = 20});
    std::mt19937 random(seed);
    std::vector<uint8_t> accumulate(graph.outputs().size());
    for (size_t o = 0; o < accumulate.size(); ++o) {
      const std::optional<ValueId> value = graph.outputs()[o].value;
      const bool number = !value || graph.type(*value).dtype == DType::kFp64;
      accumulate[o] = number && random() % 3 != 0 ? 1 : 0;
    }
    const std::vector<Values> inputs = RandomInputs(graph, seed);
    Executed executed = Execute(graph, inputs, accumulate, device);
    REQUIRE(executed.failed == "");
    const auto reference = Evaluate(graph, inputs);
    REQUIRE(reference.ok());
    TakeBefore(graph, accumulate, *reference, executed.outputs);
    const absl::Status same = CompareWithReference(graph, inputs, executed.outputs, 1e-9);
    INFO(same);
    CHECK(same.ok());
  }
  rg_device_destroy(device);
}

}  // namespace
}  // namespace retrograd
