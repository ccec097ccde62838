// Graphs of edges: rows of both ends, weights of edges, their gradients, softmaxes over the edges
// of a node. However they are planned, they give what the reference says, and kernels that sum and
// store what each edge has are among them.
#include <random>

#include "absl/strings/str_cat.h"
#include "fusion/plan/call.h"
#include "graph/text/text.h"
#include "tests/catch.h"
#include "tests/support/graphs/random_graph/random_inputs.h"
#include "tests/support/plans/compare_outputs.h"
#include "tests/support/plans/run_plan.h"
#include "tests/support/plans/ways_of_planning.h"

namespace retrograd {
namespace {

struct Sizes {
  int64_t nodes, edges, heads, features;
};

// A layer of graph attention's backward, less its products: gradients of the weights of edges, of
// the rows that they weigh, and of the scores of both ends.
std::string Attention(const Sizes& s, absl::string_view type, bool gathers_rows) {
  const auto shape = [&](std::initializer_list<int64_t> dims) {
    std::string text;
    for (int64_t d : dims) absl::StrAppend(&text, text.empty() ? "" : ",", d);
    return absl::StrCat("[", text, "]");
  };
  const std::string table = shape({s.nodes, s.heads, s.features});
  const std::string rows = shape({s.edges, s.heads, s.features});
  const std::string scores = shape({s.nodes, s.heads}), edges = shape({s.edges, s.heads});
  const auto input = [&](absl::string_view name, absl::string_view dtype, const std::string& dims) {
    return absl::StrCat("%", name, " = input name=\"", name, "\" ", dtype, dims, "\n");
  };
  return absl::StrCat(
      input("dy", type, table), input("target", "i64", shape({s.edges})),
      input("source", "i64", shape({s.edges})), input("weight", type, edges),
      gathers_rows ? input("x", type, table) : input("row", type, rows),
      gathers_rows ? "%row = index_select %x %source axis=0\n" : "", "%zeros = full dtype=", type,
      " shape=", table, " value=0.0\n", "%zero = full dtype=", type, " shape=", scores,
      " value=0.0\n",
      "%of_target = index_select %dy %target axis=0\n",  //
      "%wide = reshape %weight shape=", shape({s.edges, s.heads, 1}), "\n",
      "%message = mul %of_target %wide\n", "%dx = index_add %zeros %source %message axis=0\n",
      "%product = mul %of_target %row\n", "%dweight = sum %product axes=[2] keep=0\n",
      "%share = mul %dweight %weight\n", "%shares = index_add %zero %target %share axis=0\n",
      "%all = index_select %shares %target axis=0\n", "%less = sub %dweight %all\n",
      "%dscore = mul %less %weight\n", "%dtarget = index_add %zero %target %dscore axis=0\n",
      "%dsource = index_add %zero %source %dscore axis=0\n",
      "output %dx\noutput %dweight\noutput %dtarget\noutput %dsource\n");
}

// Some indices are counted from the end.
void Misplace(std::vector<Values>& inputs, int64_t nodes, std::mt19937& random) {
  for (int k : {1, 2}) {
    for (double& index : inputs[k]) {
      if (random() % 4 == 0) index -= static_cast<double>(nodes);
    }
  }
}

// Sums at indices that go through lists of their own and share launches.
int SharedSums(const FusionPlan& plan) {
  int sums = 0;
  for (const Group& group : plan.groups) {
    const KernelLaunch* launch = SharedLaunchOf(group);
    if (launch == nullptr || !launch->members[0].kernel.ir.scatter) continue;
    CHECK(group.workspace_bytes > 0);
    sums += static_cast<int>(launch->members.size());
  }
  return sums;
}

bool StoresPositions(const FusionPlan& plan) {
  for (const Group& group : plan.groups) {
    const KernelBody* body = KernelOf(group);
    if (body != nullptr && body->ir.scatter && !body->ir.stores.empty()) return true;
  }
  return false;
}

TEST_CASE("sums at edges give the same gradients in any plan, and share kernels in some") {
  int sharing = 0, together = 0;
  for (uint32_t seed = 1; seed <= 10; ++seed) {
    std::mt19937 random(seed);
    const auto draw = [&](int64_t most) { return 1 + static_cast<int64_t>(random() % most); };
    // Of few nodes, whose rows the caches have anyway, kernels are not predicted to gain by
    // sharing.
    const bool many = seed % 2 == 0;
    const Sizes s = many ? Sizes{200 + draw(100), 500 + draw(500), 4, 32}
                         : Sizes{draw(40), draw(300), draw(4), draw(2) == 1 ? 16 : draw(40)};
    const std::string text = Attention(s, "f64", seed % 4 < 2);
    auto graph = ParseGraph(text);
    REQUIRE(graph.status().ToString() == "OK");
    std::vector<Values> inputs = RandomInputs(*graph, seed);
    Misplace(inputs, s.nodes, random);
    const std::vector<Way> ways = WaysOfPlanning(seed);
    for (const Way& way : ways) {
      const absl::string_view name = way.name;
      const bool chosen = name == "as planned" || name == "random partition and schedules" ||
                          name == "mi300x, wavefronts of 64" || name == "tighten shared_memory" ||
                          name == "disable vectorization";
      if (!chosen) continue;
      INFO("seed " << seed << ", " << name << "\n" << text);
      auto run = RunOnHost(*graph, inputs, way.setup);
      REQUIRE(run.status().ToString() == "OK");
      sharing += StoresPositions(run->planned.plan);
      together += SharedSums(run->planned.plan);
      CHECK(CompareWithReference(*graph, inputs, run->outputs, 1e-10).ToString() == "OK");
    }
  }
  CHECK(sharing > 10);
  CHECK(together > 20);
}

TEST_CASE("sums of both ends of edges are one launch, and their parts are added up by another") {
  auto graph = ParseGraph(Attention({5'000, 30'000, 4, 16}, "f32", /*gathers_rows=*/true));
  REQUIRE(graph.status().ToString() == "OK");
  const DeviceSpec h100 = *LoadDeviceSpec("h100");
  auto together = PlanFusion(*graph, h100, {});
  REQUIRE(together.status().ToString() == "OK");
  CHECK(together->plan.Verify(together->graph).ToString() == "OK");
  CHECK(SharedSums(together->plan) == 2);
  auto apart = PlanFusion(*graph, h100, {.disable = {"horizontal"}});
  REQUIRE(apart.status().ToString() == "OK");
  CHECK(SharedSums(apart->plan) == 0);
  CHECK(together->plan.summary.kernels == apart->plan.summary.kernels - 2);
  CHECK(together->plan.summary.launches_saved == 2);
  CHECK(together->plan.summary.price_ps + together->plan.summary.shared_launch_ps ==
        apart->plan.summary.price_ps);
}

TEST_CASE("P7: sums that share a launch have a workspace for the parts of all of them") {
  auto graph = ParseGraph(Attention({5'000, 30'000, 4, 16}, "f32", /*gathers_rows=*/true));
  auto planned = PlanFusion(*graph, *LoadDeviceSpec("h100"), {});
  REQUIRE(planned.status().ToString() == "OK");
  for (Group& group : planned->plan.groups) {
    if (SharedLaunchOf(group) != nullptr) --group.workspace_bytes;
  }
  const absl::Status status = planned->plan.Verify(planned->graph);
  CHECK_THAT(status.ToString(), Catch::Contains("P7") && Catch::Contains("its kernels write"));
}

// Of 16-bit rows the second reading costs less than what waits in the shared kernel.
TEST_CASE("a gradient of weights and a sum of the same wide gathered rows are one kernel") {
  for (const absl::string_view type : {"f32", "f64"}) {
    for (const Sizes& s : {Sizes{20'000, 200'000, 4, 32}}) {
      auto graph = ParseGraph(Attention(s, type, /*gathers_rows=*/false));
      REQUIRE(graph.status().ToString() == "OK");
      auto planned = PlanFusion(*graph, *LoadDeviceSpec("h200"), {});
      REQUIRE(planned.status().ToString() == "OK");
      INFO(type << "\n" << planned->plan.Print(planned->graph));
      CHECK(StoresPositions(planned->plan));
    }
  }
}

TEST_CASE("a scatter of one position has nothing beside it") {
  auto graph = ParseGraph(R"(
%0 = input name="dy" kind=tangent alignment=16  f64[1,16]
%1 = input name="w" kind=saved alignment=16  f64[1,16]
%2 = input name="index" kind=saved alignment=16  i64[1]
%3 = full dtype=f64 shape=[37,16] value=0.0
%4 = mul %0 %1
%5 = sum %4 axes=[1] keep=0
%6 = index_add %3 %2 %4 axis=0
output %5 name="fold"
output %6 name="table"
)");
  INFO(graph.status());
  REQUIRE(graph.ok());
  RunSetup setup;
  setup.plan.disable = {"fusion_prices"};  // whatever can share a kernel does
  const std::vector<Values> inputs = RandomInputs(*graph, 7);
  const auto run = RunOnHost(*graph, inputs, setup);
  INFO(run.status());
  REQUIRE(run.ok());
  CHECK(CompareWithReference(*graph, inputs, run->outputs, 1e-10).ToString() == "OK");
}

}  // namespace
}  // namespace retrograd
