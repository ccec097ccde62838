// Shared launches: which kernels share one, and that the plan around them stays valid.
#include "fusion/horizontal/horizontal.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "fusion/horizontal/launch_price.h"
#include "fusion/lower/lower.h"
#include "fusion/planner/planner.h"
#include "fusion/planner/planning_context.h"
#include "models/models.h"
#include "tests/catch.h"
#include "tests/support/graphs/random_graph.h"

namespace retrograd {
namespace {

DeviceSpec H200() {
  auto spec = LoadDeviceSpec("h200");
  REQUIRE(spec.ok());
  return *spec;
}

Planned PlanOf(GraphBuilder* builder, const PlanOptions& options = {}) {
  auto graph = builder->Build();
  REQUIRE(graph.status().ToString() == "OK");
  auto planned = PlanFusion(*graph, H200(), options);
  REQUIRE(planned.status().ToString() == "OK");
  REQUIRE(planned->plan.Verify(planned->graph).ToString() == "OK");
  return *std::move(planned);
}

ValueId Tensor(GraphBuilder* builder, std::vector<int64_t> shape) {
  return builder->Input({DType::kFp32, std::move(shape)}, {.name = "x", .alignment = 256});
}

// Kernels of each launch, the largest number first.
std::vector<size_t> LaunchSizes(const FusionPlan& plan) {
  std::vector<size_t> sizes;
  for (const Group& group : plan.groups) {
    if (const size_t kernels = KernelsOf(group).size(); kernels > 0) sizes.push_back(kernels);
  }
  std::sort(sizes.begin(), sizes.end(), std::greater<>());
  return sizes;
}

using Sizes = std::vector<size_t>;

void AddExps(GraphBuilder* builder, const std::vector<std::vector<int64_t>>& shapes) {
  for (const std::vector<int64_t>& shape : shapes) {
    builder->Output(builder->Add(Op::exp, {Tensor(builder, shape)}), "y");
  }
}

TEST_CASE("eight independent tiny pointwise ops are one launch, and each has its own blocks") {
  GraphBuilder builder("eight");
  for (int i = 0; i < 8; ++i) AddExps(&builder, {{100 + 60 * i}});
  const Planned planned = PlanOf(&builder);
  REQUIRE(planned.plan.groups.size() == 1);
  const Group& group = planned.plan.groups[0];
  const auto& merged = *SharedLaunchOf(group);
  REQUIRE(merged.members.size() == 8);
  int64_t apart = 0;
  for (const KernelLaunch::Member& member : merged.members) {
    CHECK(member.nodes.size() == 1);
    CHECK(member.kernel.schedule.blocks >= 1);
    apart += member.price_ps;
  }
  CHECK(group.outputs.size() == 8);
  CHECK(group.price_ps < apart);
  CHECK(group.price_ps >= H200().launch_graph_ps);
  CHECK(planned.plan.summary.kernels == 1);
  CHECK(planned.plan.summary.launches_saved == 7);
  CHECK(planned.plan.summary.shared_launch_ps == apart - group.price_ps);
}

TEST_CASE("a chain of kernels keeps a launch for each") {
  GraphBuilder builder("chain");
  ValueId v = Tensor(&builder, {64, 64});
  for (int i = 0; i < 4; ++i) v = builder.Add(Op::exp, {v});
  builder.Output(v, "y");
  const Planned planned = PlanOf(&builder, {.disable = {"fusion"}});
  CHECK(LaunchSizes(planned.plan) == Sizes{1, 1, 1, 1});
}

TEST_CASE("kernels that meet only through a matmul are dependent all the same") {
  GraphBuilder builder("through");
  const ValueId a = builder.Add(Op::exp, {Tensor(&builder, {64, 64})});
  const ValueId product = builder.MatMul(a, Tensor(&builder, {64, 64}));
  builder.Output(builder.Add(Op::exp, {product}), "y");
  CHECK(LaunchSizes(PlanOf(&builder).plan) == Sizes{1, 1});
}

TEST_CASE(
    "two kernels that each fill the chip keep their launches; two small ones beside them share "
    "one") {
  GraphBuilder builder("large");
  AddExps(&builder, {{4096, 4096}, {4096, 2048}});
  CHECK(LaunchSizes(PlanOf(&builder).plan) == Sizes{1, 1});
  GraphBuilder with_small("large and small");
  AddExps(&with_small, {{4096, 4096}, {100}, {4096, 2048}, {200}});
  CHECK(LaunchSizes(PlanOf(&with_small).plan) == Sizes{2, 1, 1});
}

TEST_CASE("a launch is shared among kernels of one template") {
  GraphBuilder builder("templates");
  AddExps(&builder, {{100}, {200}});
  builder.Output(builder.Sum(Tensor(&builder, {32, 640}), {1}), "rows");
  const Planned planned = PlanOf(&builder);
  CHECK(LaunchSizes(planned.plan) == Sizes{2, 1});
}

// a -> matmul -> b and c -> matmul -> d: any two of a, c and any two of b, d may meet, but not a
// with d and c with b at once, which would wait for each other.
TEST_CASE("shared launches never wait for each other") {
  GraphBuilder builder("crossing");
  for (int i = 0; i < 2; ++i) {
    const ValueId a = builder.Add(Op::exp, {Tensor(&builder, {64, 64})});
    builder.Output(builder.Add(Op::exp, {builder.MatMul(a, Tensor(&builder, {64, 64}))}), "y");
  }
  const Planned planned = PlanOf(&builder);
  CHECK(LaunchSizes(planned.plan) == Sizes{2, 2});
}

TEST_CASE("--disable horizontal gives every kernel a launch of its own") {
  GraphBuilder builder("off");
  AddExps(&builder, {{100}, {200}, {300}});
  const Planned planned = PlanOf(&builder, {.disable = {"horizontal"}});
  CHECK(LaunchSizes(planned.plan) == Sizes{1, 1, 1});
  CHECK(planned.plan.summary.launches_saved == 0);
}

// A small kernel waits for company; who adds in place to what it reads must wait for it.
TEST_CASE("a call that adds to a value in place comes after the kernels that read the value") {
  GraphBuilder builder("adds");
  const ValueId made = builder.Add(Op::exp, {Tensor(&builder, {64, 64})});
  const ValueId read = builder.Add(Op::tanh, {made});
  const ValueId product = builder.MatMul(Tensor(&builder, {64, 32}), Tensor(&builder, {32, 64}));
  builder.Output(read, "read");
  builder.Output(product, "sum");
  const BackwardGraph graph = *Lower(*builder.Build());
  const auto context = *PlanningContext::Make(graph, H200(), {.disable = {"horizontal"}});
  Planned apart = *PlanFusion(graph, H200(), {.disable = {"horizontal", "fusion"}});
  std::vector<Group> groups = apart.plan.groups;
  REQUIRE(groups.size() == 3);
  const auto is_call = [](const Group& group) { return CallOf(group) != nullptr; };
  Group& call = *std::find_if(groups.begin(), groups.end(), is_call);
  std::get<Call>(call.body).previous = groups[0].outputs[0];
  call.inputs.push_back(groups[0].outputs[0]);
  const std::vector<Group> shared = ShareLaunches(groups, context->pricer).groups;
  REQUIRE(shared.size() == 3);
  CHECK(is_call(shared[2]));
}

TEST_CASE("the limits of one kernel hold for the sum of those that share a launch") {
  GraphBuilder builder("limits");
  AddExps(&builder, std::vector<std::vector<int64_t>>(7, {100}));
  CHECK(LaunchSizes(PlanOf(&builder, {.tighten = {"operands"}}).plan) == Sizes{3, 3, 1});
  GraphBuilder many("many");
  AddExps(&many, std::vector<std::vector<int64_t>>(60, {100}));
  for (size_t size : LaunchSizes(PlanOf(&many).plan)) CHECK(size <= 24);
}

TEST_CASE("every shared launch has a decision with its numbers, and so has a refusal") {
  GraphBuilder builder("decisions");
  AddExps(&builder, {{100}, {200}, {300}});
  const Planned planned = PlanOf(&builder);
  REQUIRE(planned.plan.decisions.size() == 1);
  const Decision& yes = planned.plan.decisions[0];
  CHECK(yes.together);
  CHECK(yes.a.size() + yes.b.size() == 3);
  CHECK(yes.apart_ps - yes.together_ps == planned.plan.summary.shared_launch_ps);
  CHECK_THAT(yes.reason, ContainsSubstring("3 independent pointwise kernels in one launch"));
  CHECK_THAT(planned.plan.Print(planned.graph), ContainsSubstring("shared launches saved=2"));

  GraphBuilder refused("refused");
  AddExps(&refused, {{100}, {200}});
  const Planned tight = PlanOf(&refused, {.tighten = {"stores"}});
  REQUIRE(tight.plan.decisions.size() == 1);
  const Decision& no = tight.plan.decisions[0];
  CHECK_FALSE(no.together);
  CHECK(no.limit == "stores");
  CHECK_THAT(no.reason, ContainsSubstring("stores 2, at most 1"));
}

// Both exps of x may overwrite it alone; side by side neither may, for the other one reads it.
TEST_CASE("what two kernels of a launch read is overwritten by neither") {
  GraphBuilder builder("in place");
  const ValueId x =
      builder.Input({DType::kFp32, {100}}, {.name = "x", .alignment = 256, .donated = true});
  const ValueId y =
      builder.Input({DType::kFp32, {100}}, {.name = "y", .alignment = 256, .donated = true});
  for (Op op : {Op::exp, Op::tanh}) builder.Output(builder.Add(op, {x}), "g");
  builder.Output(builder.Add(Op::exp, {y}), "g");
  const Planned planned = PlanOf(&builder, {.disable = {"fusion"}});
  REQUIRE(LaunchSizes(planned.plan) == Sizes{3});
  const Group& group = planned.plan.groups[0];
  REQUIRE(group.in_place.size() == 1);
  CHECK(group.in_place[0].input == y);
}

TEST_CASE(
    "the checker catches a shared launch whose kernels depend on each other or share a thread "
    "count") {
  GraphBuilder builder("checked");
  AddExps(&builder, {{100}, {200}});
  const Planned good = PlanOf(&builder);
  const auto verdict = [&](const auto& spoil) {
    FusionPlan plan = good.plan;
    spoil(plan.groups[0], *SharedLaunchOf(plan.groups[0]));
    return std::string(plan.Verify(good.graph).message());
  };
  CHECK_THAT(verdict([](Group&, KernelLaunch& m) { m.members[1].kernel.schedule.threads = 128; }),
             ContainsSubstring("cannot share the launch"));
  // One kernel alone is judged as the whole group.
  CHECK_THAT(verdict([](Group&, KernelLaunch& m) { m.members.pop_back(); }),
             ContainsSubstring("reads other values than it lists"));
  CHECK_THAT(verdict([](Group& g, KernelLaunch& m) {
               m.members[1].kernel.ir.buffers[0].value = g.outputs[0];
             }),
             ContainsSubstring("which another stores"));
  CHECK_THAT(verdict([](Group& g, KernelLaunch& m) {
               m.members[1].kernel.ir.buffers[0].value = m.members[0].kernel.ir.buffers[0].value;
               g.in_place = {{m.members[0].kernel.ir.buffers[0].value, g.outputs[0]}};
             }),
             ContainsSubstring("may overwrite"));
}

TEST_CASE("shared launches are the same in every run, and win what they say") {
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    INFO("seed " << seed);
    const BackwardGraph graph = RandomGraph(seed);
    // Without what is decided by prices of whole plans, to which shared launches belong.
    const PlanOptions options = {.disable = {"fusion", "image_order", "depthwise_taps",
                                             "split_scans", "position_order", "walk_order"}};
    auto merged = PlanFusion(graph, H200(), options);
    auto apart = PlanFusion(graph, H200(), Without(options, {"horizontal"}));
    REQUIRE(merged.ok());
    REQUIRE(apart.ok());
    CHECK(merged->plan.Verify(merged->graph).ToString() == "OK");
    const PlanSummary& s = merged->plan.summary;
    CHECK(apart->plan.summary.price_ps - s.price_ps == s.shared_launch_ps);
    CHECK(apart->plan.summary.kernels - s.kernels == s.launches_saved);
    auto again = PlanFusion(graph, H200(), options);
    CHECK(again->plan.Print(again->graph) == merged->plan.Print(merged->graph));
  }
}

TEST_CASE("captured graphs of small batches save launches") {
  for (const char* name : {"bert_tiny", "gpt2_tiny", "golf_tiny"}) {
    INFO(name);
    auto graph = BuildModel(name);
    REQUIRE(graph.ok());
    auto planned = PlanFusion(*graph, H200(), {.decisions = false});
    REQUIRE(planned.ok());
    CHECK(planned->plan.summary.launches_saved >= 5);
  }
}

}  // namespace
}  // namespace retrograd
