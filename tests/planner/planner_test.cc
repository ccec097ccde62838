// The planner: what it promises of every plan, and that its search finds the optimum.
#include "fusion/planner/planner.h"

#include <fstream>
#include <functional>
#include <sstream>

#include "absl/strings/str_replace.h"
#include "fusion/cost/limits.h"
#include "graph/text/text.h"
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

TEST_CASE(
    "every device spec that comes with the library loads, and says where each number is from") {
  const std::vector<std::string> names = DeviceSpecNames();
  CHECK(names == std::vector<std::string>{"h100", "h200", "mi250x", "mi300x"});
  for (const std::string& name : names) CHECK(LoadDeviceSpec(name).status().ToString() == "OK");
  CHECK(LoadDeviceSpec("h200")->calibrated);
  CHECK_FALSE(LoadDeviceSpec("mi300x")->calibrated);
}

TEST_CASE("a spec with a missing number, a missing source or bad text is refused by name") {
  auto refusal = [](absl::string_view text) {
    return std::string(ParseDeviceSpec(text, "mine").status().message());
  };
  CHECK(refusal("name: \"x\" vendor: \"nvidia\" arch: \"sm_90\"").find("sms is 0") !=
        std::string::npos);
  CHECK(refusal("name: \"x\" vendor: \"nvidia\" arch: \"sm_90\" sms { value: 3 }")
            .find("no source") != std::string::npos);
  CHECK(refusal("name: \"x\" vendor: \"intel\" arch: \"xe\"").find("vendor") != std::string::npos);
  CHECK(refusal("sms {").find("line 1") != std::string::npos);
  // Positive numbers that make no device.
  std::ifstream file(RETROGRAD_SOURCE_DIR "/fusion/devices/h200.textproto");
  std::stringstream text;
  text << file.rdbuf();
  const std::vector<std::pair<std::string, std::string>> absurd = {
      {"register_granule { value: 256", "register_granule { value: 1"},
      {"registers_per_sm { value: 65536", "registers_per_sm { value: 1"},
      {"max_threads_per_block { value: 1024", "max_threads_per_block { value: 1"},
      {"sm_bytes_per_s {", "sm_bytes_per_s { value: 1 source: \"test\" }  # {"}};
  for (const auto& [from, to] : absurd) {
    INFO(to);
    const std::string changed = absl::StrReplaceAll(text.str(), {{from, to}});
    REQUIRE(changed != text.str());
    CHECK(refusal(changed).find(from.substr(0, from.find(' '))) != std::string::npos);
  }
  CHECK(LoadDeviceSpec("h300").status().message().find("h200") != absl::string_view::npos);
}

TEST_CASE("plans of random graphs verify, and the same graph gives the same plan") {
  const DeviceSpec device = H200();
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    const BackwardGraph graph = RandomGraph(seed);
    INFO("seed " << seed << "\n" << Print(graph));
    auto planned = PlanFusion(graph, device);
    REQUIRE(planned.status().ToString() == "OK");
    CHECK(planned->graph.Verify().ToString() == "OK");
    CHECK(planned->plan.Verify(planned->graph).ToString() == "OK");
    auto again = PlanFusion(graph, device);
    CHECK(again->plan.Print(again->graph) == planned->plan.Print(planned->graph));
  }
}

TEST_CASE("a first plan counts on the slack of registers, one with a compiler's report does not") {
  auto graph = OpenGraph("norm_stack:rows=4096,columns=15872,norm=layer");
  REQUIRE(graph.ok());
  const auto planned = [&](const PlanOptions& options) {
    auto made = PlanFusion(*graph, H200(), options);
    REQUIRE(made.ok());
    return *std::move(made);
  };
  PlanOptions cautious, reported;
  cautious.disable.insert("register_slack");
  // Of a kernel that no plan has.
  reported.feedback.kernels[1] = {.registers = 32};
  const Planned first = planned({}), without = planned(cautious), again = planned(reported);
  CHECK(first.plan.summary.price_ps < without.plan.summary.price_ps);
  CHECK(again.plan.Print(again.graph) == without.plan.Print(without.graph));
  // What a slack may cost is in the price.
  int64_t doubtful = 0;
  for (const Group& group : first.plan.groups) {
    for (const Term& term : group.terms) {
      if (term.name == "spill") doubtful += term.ps;
    }
  }
  CHECK(doubtful > 0);
}

TEST_CASE("a plan never costs more than every op in a kernel of its own") {
  const DeviceSpec device = H200();
  for (uint32_t seed = 100; seed <= 130; ++seed) {
    auto planned = PlanFusion(RandomGraph(seed), device);
    REQUIRE(planned.ok());
    INFO("seed " << seed);
    CHECK(planned->plan.summary.price_ps <= planned->plan.summary.unfused_ps);
    CHECK(planned->plan.summary.bound_ps <= planned->plan.summary.price_ps);
  }
}

BackwardGraph NormBackward(int64_t rows, int64_t columns, DType dtype) {
  GraphBuilder b("norm");
  const ValueId dy = b.Input({dtype, {rows, columns}},
                             {.name = "dy", .kind = InputKind::kTangent, .alignment = 16});
  const ValueId x = b.Input({dtype, {rows, columns}}, {.name = "x", .alignment = 16});
  const ValueId rstd = b.Input({DType::kFp32, {rows, 1}}, {.name = "rstd", .alignment = 16});
  const ValueId w = b.Input({DType::kFp32, {columns}}, {.name = "w", .alignment = 16});
  const ValueId g =
      b.Add(Op::rms_norm_backward, {b.Cast(dy, DType::kFp32), b.Cast(x, DType::kFp32), rstd, w});
  b.Output(b.Cast(g, dtype), "dx");
  b.Output({g.node, 1}, "dw");
  auto graph = b.Build();
  REQUIRE(graph.status().ToString() == "OK");
  return *graph;
}

TEST_CASE("dx and dweight of a norm share one pass over x and dy") {
  auto planned = PlanFusion(NormBackward(16384, 4096, DType::kBf16), H200());
  REQUIRE(planned.ok());
  REQUIRE(planned->plan.groups.size() == 1);
  const Group& group = planned->plan.groups[0];
  CHECK(KernelOf(group)->schedule.kind == Template::kRowColumn);
  CHECK(KernelOf(group)->spill_bytes == 0);
  // x, dy and dx once each in bf16, and little else.
  CHECK(group.read_bytes + group.written_bytes < 3 * 2 * 16384 * 4096 * 1.01);
}

TEST_CASE("the axis of a batch of one keeps no reduction from what reads it") {
  GraphBuilder b("batch_of_one");
  const ValueId x = b.Input({DType::kFp32, {1, 2048, 1024}}, {.name = "x"});
  const ValueId dy = b.Input({DType::kFp32, {1, 2048, 1024}}, {.name = "dy"});
  const ValueId dot = b.Sum(b.Add(Op::mul, {x, dy}), {2}, /*keep=*/true);
  b.Output(b.Add(Op::sub, {dy, b.Add(Op::mul, {x, dot})}), "dx");
  auto graph = b.Build();
  REQUIRE(graph.status().ToString() == "OK");
  auto planned = PlanFusion(*graph, H200());
  REQUIRE(planned.status().ToString() == "OK");
  CHECK(planned->plan.groups.size() == 1);
}

TEST_CASE("a schedule that would spill is refused, and the refusal names registers and price") {
  auto graph = BuildModel("golf_plain_b48");
  REQUIRE(graph.status().ToString() == "OK");
  auto planned = PlanFusion(*graph, H200());
  REQUIRE(planned.ok());
  bool row_column = false;
  for (const Decision& d : planned->plan.decisions) {
    if (d.limit != "registers" || !d.together) continue;
    REQUIRE(d.alternatives.size() == 1);
    CHECK(d.alternatives[0].registers > 255);
    CHECK(d.alternatives[0].spill_bytes > 0);
    CHECK(d.alternatives[0].price_ps > d.together_ps);
    row_column = row_column || d.alternatives[0].schedule.kind == Template::kRowColumn;
  }
  CHECK(row_column);  // the norm's backward with column sums, several rows in one thread
}

TEST_CASE("no kernel of the captured full-size transformers is predicted to spill") {
  for (const char* name : {"golf_plain_b48", "golf_gpt_34m_b32"}) {
    auto graph = BuildModel(name);
    REQUIRE(graph.status().ToString() == "OK");
    auto planned = PlanFusion(*graph, H200(), {.decisions = false});
    REQUIRE(planned.ok());
    CHECK(planned->plan.Verify(planned->graph).ToString() == "OK");
    for (const Group& group : planned->plan.groups) {
      const KernelBody* kernel = KernelOf(group);
      if (kernel != nullptr) CHECK(kernel->spill_bytes == 0);
    }
  }
}

TEST_CASE("a single row is not overwritten in place while other thread rows may load it") {
  GraphBuilder b("one_row");
  const ValueId x = b.Input({DType::kFp64, {3, 12}}, {.name = "x", .alignment = 16});
  const ValueId y = b.Input({DType::kFp64, {3, 12}}, {.name = "y", .alignment = 16});
  const ValueId t = b.Add(Op::tanh, {y});
  b.Output(b.Add(Op::mul, {t, b.Sum(x, {0, 1})}), "z");
  auto graph = b.Build();
  REQUIRE(graph.ok());
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    INFO("seed " << seed);
    PlanOptions options;
    options.search.random_seed = seed;
    options.random_schedules = seed;
    auto planned = PlanFusion(*graph, H200(), options);
    REQUIRE(planned.ok());
    for (const Group& group : planned->plan.groups) {
      const KernelBody* kernel = KernelOf(group);
      if (kernel == nullptr || kernel->schedule.kind != Template::kRowReduction) continue;
      if (kernel->schedule.rows_per_block > 1) CHECK(group.in_place.empty());
    }
  }
}

TEST_CASE(
    "graphs without elements have plans, and a library call without elements costs a launch") {
  GraphBuilder b("empty");
  const ValueId x = b.Input({DType::kFp32, {0, 3}}, {.name = "x"});
  const ValueId w = b.Input({DType::kFp32, {3, 4}}, {.name = "w"});
  const ValueId y = b.Input({DType::kFp32, {5, 0}}, {.name = "y"});
  b.Output(b.Add(Op::exp, {x}), "a");
  b.Output(b.MatMul(x, w), "b");
  b.Output(b.Sum(x, {0}), "c");
  b.Output(b.Add(Op::exp, {y}), "d");
  b.Output(b.Full(1, DType::kFp32, {0, 4}), "e");
  auto graph = b.Build();
  REQUIRE(graph.status().ToString() == "OK");
  auto planned = PlanFusion(*graph, H200());
  REQUIRE(planned.status().ToString() == "OK");
  CHECK(planned->plan.Verify(planned->graph).ToString() == "OK");
}

TEST_CASE("a chain without barriers is cut, so that planning stays linear in its length") {
  auto graph = BuildModel("norm_stack:layers=400");
  REQUIRE(graph.ok());
  auto planned = PlanFusion(*graph, H200());
  REQUIRE(planned.ok());
  CHECK(planned->plan.Verify(planned->graph).ToString() == "OK");
  CHECK(planned->plan.summary.regions > 2);
  CHECK(planned->plan.summary.gap_ps > 0);  // and it does not claim to be optimal
}

TEST_CASE("names that do not exist cannot be disabled or tightened") {
  const BackwardGraph graph = NormBackward(64, 64, DType::kFp32);
  const auto disable = PlanFusion(graph, H200(), {.disable = {"vectorisation"}});
  CHECK(disable.status().message().find("vectorization") != absl::string_view::npos);
  const auto tighten = PlanFusion(graph, H200(), {.disable = {}, .tighten = {"register"}});
  CHECK(tighten.status().message().find("registers") != absl::string_view::npos);
}

TEST_CASE("each limit refuses something when it is tightened, and the plan still verifies") {
  const BackwardGraph graph = NormBackward(4096, 1024, DType::kFp32);
  const DeviceSpec device = H200();
  const size_t groups = PlanFusion(graph, device)->plan.groups.size();
  for (const char* name : {"ops", "reductions", "stores", "mixed_reductions"}) {
    INFO(name);
    auto planned = PlanFusion(graph, device, {.disable = {}, .tighten = {name}});
    REQUIRE(planned.ok());
    CHECK(planned->plan.Verify(planned->graph).ToString() == "OK");
    CHECK(planned->plan.groups.size() > groups);
  }
}

TEST_CASE("the checker catches a plan that lost an op, swapped groups or reads too early") {
  auto graph = BuildModel("golf_tiny");
  REQUIRE(graph.ok());
  auto planned = PlanFusion(*graph, H200(), {.decisions = false});
  REQUIRE(planned.ok());
  const BackwardGraph& g = planned->graph;
  auto broken = [&](const std::function<void(FusionPlan&)>& damage) {
    FusionPlan plan = planned->plan;
    damage(plan);
    return std::string(plan.Verify(g).message()).substr(0, 2);
  };
  CHECK(broken([](FusionPlan& p) { p.groups[3].nodes.pop_back(); }) == "P1");
  CHECK(broken([](FusionPlan& p) { p.groups[3].nodes.push_back(p.groups[5].nodes[0]); }) == "P1");
  CHECK(broken([&](FusionPlan& p) {
          std::reverse(p.groups.begin(), p.groups.end());
          for (size_t i = 0; i < p.groups.size(); ++i) {
            for (NodeId id : p.groups[i].nodes) p.group_of[Index(id)] = GroupId{uint32_t(i)};
          }
        }) == "P2");
  CHECK(broken([](FusionPlan& p) { p.groups.back().inputs.clear(); }) == "P3");
  CHECK(broken([](FusionPlan& p) { p.groups[0].outputs.clear(); })[0] == 'P');
}

}  // namespace
}  // namespace retrograd
