#include "runtime/program/program.h"

#include <cmath>
#include <cstdlib>
#include <memory>

#include "models/models.h"
#include "tests/catch.h"
#include "tests/support/allocation_count.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/plans/run_plan.h"

namespace retrograd {
namespace {

BackwardGraph Built(GraphBuilder* builder) {
  auto graph = builder->Build();
  INFO(graph.status());
  REQUIRE(graph.ok());
  return *std::move(graph);
}

BackwardGraph SmallModel(absl::string_view name) {
  auto graph = BuildModel(name);
  INFO(graph.status());
  REQUIRE(graph.ok());
  return *std::move(graph);
}

// Runs the graph and requires every output within `tolerance` x the largest magnitude of the
// reference's output.
void CheckRun(const BackwardGraph& graph, const RunSetup& setup, double tolerance) {
  const std::vector<Values> inputs = RandomInputs(graph, 5);
  auto run = RunOnHost(graph, inputs, setup);
  INFO(run.status());
  REQUIRE(run.ok());
  auto expected = Evaluate(graph, inputs);
  REQUIRE(expected.ok());
  for (size_t o = 0; o < graph.outputs().size(); ++o) {
    if (!graph.outputs()[o].value) continue;
    const Values& want = (*expected)[graph.value_index(*graph.outputs()[o].value)];
    double largest = 1e-30, error = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      largest = std::max(largest, std::abs(want[i]));
      const double difference = std::abs(run->outputs[o][i] - want[i]);
      error = difference <= error ? error : difference;  // keeps a NaN
    }
    INFO("output " << o << " error " << error << " of " << largest);
    CHECK(error <= tolerance * largest);
  }
}

TEST_CASE("models give the reference's gradients on one stream and on many, in any legal order") {
  const std::string model =
      GENERATE(as<std::string>{}, "mlp:layers=2,tokens=24,in=16,hidden=20,out=12,dtype=fp32",
               "norm_stack:layers=2,rows=40,columns=24,dtype=fp32",
               "transformer:layers=1,d=16,tokens=24,heads=2,dtype=fp32");
  const int streams = GENERATE(1, 4);
  INFO(model << " on " << streams << " streams");
  const BackwardGraph graph = SmallModel(model);
  RunSetup setup;
  setup.compile.schedule.streams = streams;
  for (uint64_t seed : {0, 1, 2}) {
    setup.program.order_seed = seed;
    setup.host.seed = seed;
    CheckRun(graph, setup, 2e-5);
  }
  setup.compile.memory.reuse = false;
  CheckRun(graph, setup, 2e-5);
}

TEST_CASE("the checking build finds nothing to report in a model's kernels") {
  RunSetup setup;
  setup.host.compile.check = true;
  setup.compile.schedule.streams = 3;
  setup.program.order_seed = 3;
  CheckRun(SmallModel("mlp:layers=2,tokens=24,in=16,hidden=20,out=12,dtype=fp32"), setup, 2e-5);
}

TEST_CASE("outputs may be absent, repeated, an input, a view, of any strides") {
  GraphBuilder builder("outputs");
  const ValueId x = builder.Input({DType::kFp32, {6, 10}}, {.name = "x", .strides = {1, 6}});
  const ValueId y = builder.Add(Op::exp, {x});
  const ValueId z = builder.Sum(y, {0});
  builder.Output(y, "y");
  builder.Output(y, "again", {1, 7});
  builder.AbsentOutput("none");
  builder.Output(x, "input");
  builder.Output(builder.Permute(y, {1, 0}), "transposed");
  builder.Output(z, "z", {3});
  builder.Output(builder.Reshape(y, {60}), "flat");
  builder.Output(builder.Expand(z, {4, 10}), "expanded");
  CheckRun(Built(&builder), {}, 1e-6);
}

// A loaded program with inputs and outputs of its own.
struct Loaded {
  std::unique_ptr<Device> device = MakeHostDevice({});
  std::unique_ptr<Program> program;
  std::vector<std::vector<char>> in, out;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;

  Loaded(const BackwardGraph& graph, const CompileOptions& options) {
    auto spec = LoadDeviceSpec("h200");
    REQUIRE(spec.ok());
    auto planned = PlanFusion(graph, *spec, {.disable = {"matmul_epilogues"}});
    INFO(planned.status());
    REQUIRE(planned.ok());
    auto compiled = Compile(planned->graph, planned->plan, options);
    INFO(compiled.status());
    REQUIRE(compiled.ok());
    auto loaded = Program::Load(*compiled, device.get());
    INFO(loaded.status());
    REQUIRE(loaded.ok());
    program = *std::move(loaded);
    const std::vector<Values> values = RandomInputs(graph, 1);
    const std::vector<NodeId> nodes = InputNodes(graph);
    for (size_t i = 0; i < nodes.size(); ++i) {
      in.push_back(Pack(graph.type(nodes[i]), graph.node(nodes[i]).input->strides, values[i]));
    }
    for (const GraphOutput& o : graph.outputs()) {
      out.emplace_back(o.value ? graph.type(*o.value).size_bytes() + 16 : 0);
    }
    for (auto& bytes : in) inputs.push_back(bytes.data());
    for (auto& bytes : out) outputs.push_back(bytes.data());
  }
};

TEST_CASE("a run allocates nothing") {
  for (const char* model : {"mlp:layers=2,tokens=24,in=16,hidden=20,out=12,dtype=bf16",
                            "transformer:layers=1,d=16,tokens=24,heads=2,dtype=bf16"}) {
    INFO(model);
    Loaded loaded(SmallModel(model), {.schedule = {.streams = 2}});
    const int64_t before_first = AllocationCount();
    REQUIRE(loaded.program->Run(loaded.inputs, loaded.outputs).ok());
    const int64_t before_second = AllocationCount();
    REQUIRE(loaded.program->Run(loaded.inputs, loaded.outputs).ok());
    CHECK(AllocationCount() == before_second);
    CHECK(before_second == before_first);
  }
}

TEST_CASE("a program may run on other addresses each time") {
  const BackwardGraph graph = SmallModel("mlp:layers=1,tokens=8,in=4,hidden=4,out=4,dtype=fp32");
  Loaded loaded(graph, {});
  REQUIRE(loaded.program->Run(loaded.inputs, loaded.outputs).ok());
  const std::vector<std::vector<char>> first = loaded.out;
  std::vector<std::vector<char>> in = loaded.in, out = loaded.out;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  for (auto& bytes : in) inputs.push_back(bytes.data());
  for (auto& bytes : out) {
    std::fill(bytes.begin(), bytes.end(), '\x55');
    outputs.push_back(bytes.data());
  }
  REQUIRE(loaded.program->Run(inputs, outputs).ok());
  for (size_t o = 0; o < out.size(); ++o) {
    const size_t bytes = out[o].size() < 16 ? 0 : out[o].size() - 16;
    CHECK(std::equal(first[o].begin(), first[o].begin() + bytes, out[o].begin()));
  }
}

TEST_CASE("missing, misaligned and miscounted addresses are refused by name") {
  const BackwardGraph graph = SmallModel("mlp:layers=1,tokens=8,in=4,hidden=4,out=4,dtype=fp32");
  Loaded loaded(graph, {});
  const auto message = [&](const std::vector<const void*>& in, const std::vector<void*>& out) {
    return std::string(loaded.program->Run(in, out).message());
  };
  std::vector<const void*> in = loaded.inputs;
  in.pop_back();
  CHECK_THAT(message(in, loaded.outputs), ContainsSubstring("inputs"));
  in = loaded.inputs;
  in[0] = nullptr;
  CHECK_THAT(message(in, loaded.outputs), ContainsSubstring("input 0 ("));
  in = loaded.inputs;
  in[0] = static_cast<const char*>(in[0]) + 1;
  CHECK_THAT(message(in, loaded.outputs), ContainsSubstring("multiple of"));
  std::vector<void*> out = loaded.outputs;
  out[0] = nullptr;
  CHECK_THAT(message(loaded.inputs, out), ContainsSubstring("output 0 ("));
}

TEST_CASE("a donated input may be overwritten, an input that is not donated never is") {
  GraphBuilder builder("donated");
  const bool donated = GENERATE(false, true);
  const ValueId x =
      builder.Input({DType::kFp32, {64, 64}}, {.name = "x", .alignment = 16, .donated = donated});
  const ValueId w = builder.Input({DType::kFp32, {64, 64}}, {.name = "w", .alignment = 16});
  const ValueId a = builder.Add(Op::exp, {x});
  builder.Output(builder.MatMul(a, w), "y");
  const BackwardGraph graph = Built(&builder);
  Loaded loaded(graph, {.memory = {.overwrite_donated = true}});
  const std::vector<char> before = loaded.in[0];
  REQUIRE(loaded.program->Run(loaded.inputs, loaded.outputs).ok());
  if (!donated) CHECK(loaded.in[0] == before);
  auto expected = Evaluate(graph, RandomInputs(graph, 1));
  REQUIRE(expected.ok());
  const ValueId y = *graph.outputs()[0].value;
  const Values found = Unpack(graph.type(y), {}, loaded.out[0]);
  for (size_t i = 0; i < found.size(); ++i) {
    CHECK(found[i] == Approx((*expected)[graph.value_index(y)][i]).epsilon(1e-4).margin(1e-4));
  }
}

}  // namespace
}  // namespace retrograd
