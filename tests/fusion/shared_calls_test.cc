// Products that share launches in a plan: which ones do, what the checker makes of them, and that a
// run gives the same gradients.
#include "fusion/horizontal/shared_calls.h"

#include "fusion/ops/convolution/shared_products.h"
#include "fusion/planner/planner.h"
#include "tests/catch.h"
#include "tests/support/graphs/random_graph/random_inputs.h"
#include "tests/support/plans/run_plan.h"

namespace retrograd {
namespace {

constexpr DType kBf16 = DType::kBf16, kFp32 = DType::kFp32;

// A device whose products share launches where that wins.
DeviceSpec H100() {
  auto spec = LoadDeviceSpec("h100");
  REQUIRE(spec.ok());
  spec->side_products_ppm = 600000;
  return *spec;
}

Planned PlanOf(const BackwardGraph& graph, const PlanOptions& options = {}) {
  auto planned = PlanFusion(graph, H100(), options);
  REQUIRE(planned.status().ToString() == "OK");
  REQUIRE(planned->plan.Verify(planned->graph).ToString() == "OK");
  return *std::move(planned);
}

// The gradient of a weight, of `rows` rows of gradients and inputs.
ValueId WeightGradient(GraphBuilder* builder, int64_t rows, int64_t filters, int64_t channels) {
  const auto input = [&](int64_t columns) {
    return builder->Input({kBf16, {rows, columns}}, {.name = "x", .alignment = 16});
  };
  const ValueId y = input(filters);
  return builder->Cast(builder->MatMul(builder->Permute(y, {1, 0}), input(channels)), kFp32);
}

void AddWeightGradients(GraphBuilder* builder, int count, int64_t rows = 392) {
  for (int i = 0; i < count; ++i) {
    builder->Output(WeightGradient(builder, rows, 256, i % 2 == 0 ? 512 : 256), "dw");
  }
}

BackwardGraph Built(GraphBuilder* builder) {
  auto graph = builder->Build();
  REQUIRE(graph.status().ToString() == "OK");
  return *std::move(graph);
}

std::vector<size_t> SharedSizes(const FusionPlan& plan) {
  std::vector<size_t> sizes;
  for (const Group& group : plan.groups) {
    if (const CallLaunch* shared = SharedCallsOf(group)) sizes.push_back(shared->members.size());
  }
  return sizes;
}

using Sizes = std::vector<size_t>;

TEST_CASE("small gradients of weights share a launch, which says what it wins") {
  GraphBuilder builder("eight");
  AddWeightGradients(&builder, 8);
  const BackwardGraph graph = Built(&builder);
  const Planned together = PlanOf(graph), apart = PlanOf(graph, {.disable = {"shared_products"}});
  CHECK(SharedSizes(together.plan) == Sizes{8});
  CHECK(SharedSizes(apart.plan).empty());
  const PlanSummary& s = together.plan.summary;
  CHECK(s.launches_saved == 7);
  CHECK(apart.plan.summary.price_ps - s.price_ps == s.shared_launch_ps);
  CHECK(s.bound_ps <= s.price_ps);
  REQUIRE(together.plan.decisions.size() == 1);
  CHECK_THAT(together.plan.decisions[0].reason, ContainsSubstring("8 products in one launch"));
  CHECK_THAT(together.plan.Print(together.graph), ContainsSubstring("shared launch calls=8"));
  CHECK(SharedSizes(PlanOf(graph, {.disable = {"image_boxes"}}).plan).empty());
  DeviceSpec unknown = H100();
  unknown.side_products_ppm = 0;
  CHECK(SharedSizes(PlanFusion(graph, unknown)->plan).empty());
}

TEST_CASE("what others wait for, and what fills the chip, shares no launch of products") {
  GraphBuilder waited("waited");
  AddWeightGradients(&waited, 4);
  const ValueId read = WeightGradient(&waited, 392, 256, 256);
  waited.Output(waited.Sum(read, {0}), "sum");
  CHECK(SharedSizes(PlanOf(Built(&waited)).plan) == Sizes{4});

  GraphBuilder large("large");
  AddWeightGradients(&large, 4, /*rows=*/1 << 16);
  CHECK(SharedSizes(PlanOf(Built(&large)).plan).empty());
}

TEST_CASE("a launch has as many products as it has room for descriptions") {
  GraphBuilder builder("many");
  AddWeightGradients(&builder, 40, /*rows=*/98);
  for (const size_t size : SharedSizes(PlanOf(Built(&builder)).plan))
    CHECK(size <= kMostSharedProducts);
}

TEST_CASE("the checker catches products that share a launch and should not") {
  GraphBuilder builder("checked");
  AddWeightGradients(&builder, 6);
  const Planned good = PlanOf(Built(&builder));
  REQUIRE(SharedSizes(good.plan) == Sizes{6});
  const auto verdict = [&](const auto& spoil) {
    FusionPlan plan = good.plan;
    for (Group& group : plan.groups) {
      if (CallLaunch* shared = SharedCallsOf(group)) spoil(group, *shared);
    }
    return std::string(plan.Verify(good.graph).message());
  };
  CHECK_THAT(verdict([](Group&, CallLaunch& s) { s.members.pop_back(); }),
             ContainsSubstring("compute other ops than it lists"));
  CHECK_THAT(verdict([](Group&, CallLaunch& s) {
               std::swap(s.members[0].call.operands[0].value, s.members[2].call.operands[0].value);
             }),
             ContainsSubstring("P6"));
  CHECK_THAT(verdict([](Group& g, CallLaunch&) { g.inputs.pop_back(); }),
             ContainsSubstring("not among the group's inputs"));
  CHECK_THAT(verdict([](Group&, CallLaunch& s) {
               s.members[1].call.previous = s.members[0].call.results[0].value;
             }),
             ContainsSubstring("adds, or not, unlike the graph"));
}

TEST_CASE("a run with shared products gives the gradients of one without") {
  GraphBuilder builder("run");
  AddWeightGradients(&builder, 5, /*rows=*/40);
  const BackwardGraph graph = Built(&builder);
  const std::vector<Values> inputs = RandomInputs(graph, 7);
  RunSetup together, apart;
  together.spec = apart.spec = H100();
  together.host.compile.check = true;
  apart.plan.disable.insert("shared_products");
  const auto a = RunOnHost(graph, inputs, together), b = RunOnHost(graph, inputs, apart);
  REQUIRE(a.status().ToString() == "OK");
  REQUIRE(b.status().ToString() == "OK");
  CHECK(SharedSizes(a->planned.plan) == Sizes{5});
  for (size_t o = 0; o < a->outputs.size(); ++o) {
    for (size_t i = 0; i < a->outputs[o].size(); ++i) {
      REQUIRE(a->outputs[o][i] == Approx(b->outputs[o][i]).margin(1e-3));
    }
  }
}

}  // namespace
}  // namespace retrograd
