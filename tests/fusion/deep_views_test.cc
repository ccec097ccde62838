// A file may stack views as deep as it has nodes: nothing on the way to a plan recurses through
// them. RETROGRAD_DEEP_VIEWS=1000000 stacks so many instead of 100,000.
#include <algorithm>
#include <cstdlib>
#include <functional>

#include "fusion/planner/planner.h"
#include "graph/proto/proto.h"
#include "graph/text/text.h"
#include "tests/catch.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/plans/run_plan.h"

namespace retrograd {
namespace {

int Depth() {
  const char* wanted = std::getenv("RETROGRAD_DEEP_VIEWS");
  return wanted == nullptr ? 100'000 : std::atoi(wanted);
}

// exp, then the two views in turn, then neg.
BackwardGraph Stack(Shape shape, const std::function<ValueId(GraphBuilder&, ValueId)>& first,
                    const std::function<ValueId(GraphBuilder&, ValueId)>& second) {
  GraphBuilder b("deep");
  TensorType type{.dtype = DType::kFp32, .shape = std::move(shape)};
  ValueId v = b.Add(Op::exp, {b.Input(type, {.name = "x"})});
  for (int i = 0; i < Depth() / 2; ++i) v = second(b, first(b, v));
  b.Output(b.Add(Op::neg, {v}), "y");
  auto graph = std::move(b).Build();
  REQUIRE(graph.status().ToString() == "OK");
  return *std::move(graph);
}

void CheckPlanned(const BackwardGraph& graph) {
  CHECK(graph.Verify().ToString() == "OK");
  auto read = ParseGraphProto(SerializeGraph(graph));
  REQUIRE(read.status().ToString() == "OK");
  CHECK(*read == graph);
  auto parsed = ParseGraph(Print(graph));
  REQUIRE(parsed.status().ToString() == "OK");
  const auto planned = PlanFusion(graph, *LoadDeviceSpec("h200"), {});
  INFO(planned.status());
  REQUIRE(planned.ok());
  CHECK(planned->plan.Verify(planned->graph).ToString() == "OK");
  CHECK_FALSE(planned->plan.Print(planned->graph).empty());
}

TEST_CASE("reshapes stacked by the hundred thousand are planned") {
  CheckPlanned(Stack(
      {15},
      [](GraphBuilder& b, ValueId v) {
        return b.Reshape(v, {3, 5});
      },
      [](GraphBuilder& b, ValueId v) { return b.Reshape(v, {15}); }));
}

TEST_CASE("permutes stacked by the hundred thousand are planned") {
  CheckPlanned(Stack(
      {2, 3, 4},
      [](GraphBuilder& b, ValueId v) {
        return b.Permute(v, {1, 2, 0});
      },
      [](GraphBuilder& b, ValueId v) {
        return b.Permute(v, {1, 0, 2});
      }));
}

TEST_CASE("slices of what is repeated, stacked by the hundred thousand, are planned") {
  CheckPlanned(Stack(
      {1, 4},
      [](GraphBuilder& b, ValueId v) {
        return b.Expand(v, {2, 4});
      },
      [](GraphBuilder& b, ValueId v) {
        Attrs attrs;
        attrs.Set("axis", int64_t{0});
        attrs.Set("start", int64_t{1});
        attrs.Set("stop", int64_t{2});
        attrs.Set("step", int64_t{1});
        return b.Add(Op::slice, {v}, std::move(attrs));
      }));
}

TEST_CASE("stacked pads are cut by copies, so that no access has guards without end") {
  GraphBuilder b("padded");
  ValueId v = b.Add(Op::exp, {b.Input({.dtype = DType::kFp32, .shape = {4}}, {.name = "x"})});
  for (int i = 0; i < 2000; ++i) {
    Attrs attrs;
    attrs.Set("low", std::vector<int64_t>{1});
    attrs.Set("high", std::vector<int64_t>{0});
    attrs.Set("value", 0.5);
    v = b.Add(Op::pad, {v}, std::move(attrs));
  }
  b.Output(b.Add(Op::neg, {v}), "y");
  const auto graph = b.Build();
  REQUIRE(graph.status().ToString() == "OK");
  const auto planned = PlanFusion(*graph, *LoadDeviceSpec("h200"), {});
  REQUIRE(planned.status().ToString() == "OK");
  CHECK(planned->plan.Verify(planned->graph).ToString() == "OK");
  size_t guards = 0;
  for (const Group& group : planned->plan.groups) {
    for (const KernelBody* kernel : KernelsOf(group)) {
      for (const Instr& instr : kernel->ir.instrs) guards = std::max(guards, instr.guards.size());
    }
  }
  CHECK(guards > 0);
  CHECK(guards < 1000);
}

// Each extent of the reshaped tensor is half of one extent of x and half of the next.
TEST_CASE("an op whose views cut its axes into more than a kernel has is one kernel, and right") {
  const auto graph = ParseGraph(R"(%0 = input name="x" kind=saved f32[4,4,4,4,4,4,4,4,4]
%1 = reshape %0 shape=[2,4,4,4,4,4,4,4,4,2]
%2 = permute %1 perm=[9,8,7,6,5,4,3,2,1,0]
%3 = reshape %2 shape=[4,4,4,4,4,4,4,4,4]
%4 = add %0 %3
output %4 name="y"
)");
  REQUIRE(graph.status().ToString() == "OK");
  const std::vector<Values> inputs = RandomInputs(*graph, 3);
  const auto run = RunOnHost(*graph, inputs, {});
  REQUIRE(run.status().ToString() == "OK");
  CHECK(run->planned.plan.Verify(run->planned.graph).ToString() == "OK");
  CHECK(run->planned.plan.groups.size() == 1);
  const auto expected = Evaluate(*graph, inputs, {.mode = ReferenceOptions::kRoundEveryOp});
  REQUIRE(expected.status().ToString() == "OK");
  const bool equal = run->outputs[0] == (*expected)[graph->value_index(*graph->outputs()[0].value)];
  CHECK(equal);
}

}  // namespace
}  // namespace retrograd
