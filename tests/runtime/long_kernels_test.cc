// Expressions of hundreds of ops: one kernel, whose values wait for their readers in few registers.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "fusion/kernel/build/build.h"
#include "fusion/kernel/build/order_instructions.h"
#include "fusion/lower/layouts/layouts.h"
#include "graph/text/text.h"
#include "tests/catch.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/plans/run_plan.h"

namespace retrograd {
namespace {

// A pointwise expression of so many ops over four tensors: each op reads values made shortly before
// it, and some made long before. Values stay small. The last ones are outputs.
std::string Expression(uint32_t seed, int ops, int outputs) {
  uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
  const auto draw = [&](int below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int>((state >> 33) % static_cast<uint64_t>(below));
  };
  std::string text;
  constexpr int kInputs = 4;
  for (int i = 0; i < kInputs; ++i) {
    absl::StrAppend(&text, "%", i, " = input name=\"x", i,
                    "\" kind=saved alignment=16 f64[40,7]\n");
  }
  int values = kInputs;
  for (int i = 0; i < ops; ++i) {
    const int near = std::max(0, values - 1 - draw(6)), far = draw(values);
    constexpr const char* kBinary[] = {"add", "sub", "mul", "maximum"};
    if (draw(3) == 0) {
      absl::StrAppend(&text, "%", values++, " = tanh %", near, "\n");
    } else {
      absl::StrAppend(&text, "%", values++, " = ", kBinary[draw(4)], " %", near, " %", far, "\n");
    }
  }
  for (int i = 0; i < outputs; ++i) {
    absl::StrAppend(&text, "output %", values - 1 - i, " name=\"y", i, "\"\n");
  }
  return text;
}

// The sum of so many squares.
std::string SumOfSquares(int terms) {
  std::string text;
  for (int i = 0; i < terms; ++i) {
    absl::StrAppend(&text, "%", i, " = input name=\"x", i,
                    "\" kind=saved alignment=16 f32[1000]\n");
  }
  for (int i = 0; i < terms; ++i) {
    absl::StrAppend(&text, "%", terms + i, " = mul %", i, " %", i, "\n");
  }
  for (int i = 1; i < terms; ++i) {
    absl::StrAppend(&text, "%", 2 * terms + i - 1, " = add %", i == 1 ? terms : 2 * terms + i - 2,
                    " %", terms + i, "\n");
  }
  absl::StrAppend(&text, "output %", 3 * terms - 2, " name=\"y\"\n");
  return text;
}

// The same kernel with everything but sums in front, so that all squares wait.
KernelIr SumsLast(const KernelIr& ir) {
  std::vector<int> order, place(ir.instrs.size());
  for (const bool sums : {false, true}) {
    for (int i = 0; i < static_cast<int>(ir.instrs.size()); ++i) {
      if ((ir.instrs[i].op == Op::add) == sums) order.push_back(i);
    }
  }
  KernelIr late = ir;
  for (size_t i = 0; i < order.size(); ++i) {
    late.instrs[i] = ir.instrs[order[i]];
    place[order[i]] = static_cast<int>(i);
  }
  for (Instr& instr : late.instrs) {
    for (int& operand : instr.operands) operand = place[operand];
  }
  for (Store& store : late.stores) store.instr = place[store.instr];
  return late;
}

KernelIr IrOf(const BackwardGraph& graph) {
  std::vector<NodeId> ops;
  std::vector<ValueId> stores;
  const std::vector<Layout> layouts = AssignLayouts(graph).of;
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    if (Computes(graph, NodeId{i})) ops.push_back(NodeId{i});
  }
  for (const auto& output : graph.outputs()) stores.push_back(*output.value);
  KernelOutcome outcome =
      BuildKernel({.graph = graph, .layouts = layouts, .nodes = ops, .stores = stores});
  REQUIRE(outcome.ir.has_value());
  return *std::move(outcome.ir);
}

TEST_CASE("long expressions become few kernels, with the values of the reference") {
  for (uint32_t seed = 1; seed <= 6; ++seed) {
    const int ops = 100 + 60 * static_cast<int>(seed), outputs = 1 + static_cast<int>(seed % 3);
    auto graph = ParseGraph(Expression(seed, ops, outputs));
    INFO("seed " << seed << ", " << ops << " ops");
    REQUIRE(graph.status().ToString() == "OK");
    const std::vector<Values> inputs = RandomInputs(*graph, seed);
    RunSetup setup;
    setup.host.compile.check = true;
    auto joined = RunOnHost(*graph, inputs, setup);
    setup.plan.disable.insert("joined_kernels");
    auto apart = RunOnHost(*graph, inputs, setup);
    REQUIRE(joined.status().ToString() == "OK");
    REQUIRE(apart.status().ToString() == "OK");
    CHECK(joined->planned.plan.Verify(joined->planned.graph).ToString() == "OK");
    CHECK(joined->planned.plan.groups.size() < apart->planned.plan.groups.size());
    CHECK(joined->planned.plan.summary.price_ps < apart->planned.plan.summary.price_ps);
    auto all = Evaluate(*graph, inputs, {.mode = ReferenceOptions::kFloat64, .keep_all = true});
    REQUIRE(all.ok());
    for (size_t o = 0; o < graph->outputs().size(); ++o) {
      const Values& want = (*all)[graph->value_index(*graph->outputs()[o].value)];
      for (size_t i = 0; i < want.size(); ++i) {
        const double error = std::fabs(joined->outputs[o][i] - want[i]);
        CHECK(error <= 1e-10 * std::max(1.0, std::fabs(want[i])));
      }
    }
  }
}

TEST_CASE("a long kernel computes what a sum reads right before it") {
  auto graph = ParseGraph(SumOfSquares(60));
  REQUIRE(graph.status().ToString() == "OK");
  KernelIr ir = SumsLast(IrOf(*graph));
  REQUIRE(ir.instrs.size() > kGraphsOrder);
  REQUIRE(ir.Verify().ToString() == "OK");
  CHECK(MostWaiting(ir) >= 60);
  OrderInstructions(ir);
  CHECK(ir.Verify().ToString() == "OK");
  CHECK(MostWaiting(ir) <= 3);
}

TEST_CASE("a short kernel stays as it is") {
  auto graph = ParseGraph(SumOfSquares(20));
  REQUIRE(graph.status().ToString() == "OK");
  const KernelIr ir = SumsLast(IrOf(*graph));
  KernelIr again = ir;
  OrderInstructions(again);
  CHECK(again == ir);
}

TEST_CASE("another order never makes more values wait") {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    auto graph = ParseGraph(Expression(seed, 400, 3));
    INFO("seed " << seed);
    REQUIRE(graph.status().ToString() == "OK");
    const KernelIr ir = IrOf(*graph);
    CHECK(ir.Verify().ToString() == "OK");
    KernelIr again = ir;
    OrderInstructions(again);
    CHECK(MostWaiting(again) <= MostWaiting(ir));
    CHECK(again.instrs.size() == ir.instrs.size());
  }
}

}  // namespace
}  // namespace retrograd
