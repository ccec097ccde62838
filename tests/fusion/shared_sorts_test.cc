// Sorts that share launches in a plan: which ones do, what it says of them, and that a run gives
// the sums of one without.
#include "fusion/horizontal/shared_sorts.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fusion/ops/sort_indices/sort_price.h"
#include "fusion/planner/planner.h"
#include "tests/catch.h"
#include "tests/support/graphs/parsed_graph.h"
#include "tests/support/graphs/random_graph/random_inputs.h"
#include "tests/support/plans/run_plan.h"

namespace retrograd {
namespace {

struct Table {
  int64_t rows, indices;
  std::string index = "input";  // or the op that makes it
  int64_t width = 4;
};

// A sum of gradients into each table.
std::string SumsInto(const std::vector<Table>& tables) {
  std::string text;
  for (size_t t = 0; t < tables.size(); ++t) {
    const auto& [rows, indices, index, width] = tables[t];
    if (index == "input") absl::StrAppend(&text, "%i", t, " = input i64[", indices, "]\n");
    absl::StrAppend(&text, "%g", t, " = input f32[", indices, ",", width, "]\n");
  }
  for (size_t t = 0; t < tables.size(); ++t) {
    const auto& [rows, indices, index, width] = tables[t];
    if (index != "input") absl::StrAppend(&text, "%i", t, " = ", index, "\n");
    absl::StrAppend(&text, "%z", t, " = full dtype=f32 shape=[", rows, ",", width, "] value=0.0\n");
    absl::StrAppend(&text, "%a", t, " = index_add %z", t, " %i", t, " %g", t, " axis=0\n");
  }
  for (size_t t = 0; t < tables.size(); ++t) absl::StrAppend(&text, "output %a", t, "\n");
  return text;
}

Planned PlanOf(const BackwardGraph& graph, const PlanOptions& options = {.decisions = true}) {
  auto planned = PlanFusion(graph, *LoadDeviceSpec("h200"), options);
  REQUIRE(planned.status().ToString() == "OK");
  REQUIRE(planned->plan.Verify(planned->graph).ToString() == "OK");
  return *std::move(planned);
}

using Sizes = std::vector<size_t>;

Sizes SharedSizes(const FusionPlan& plan) {
  Sizes sizes;
  for (const Group& group : plan.groups) {
    if (const CallLaunch* shared = SharedCallsOf(group)) sizes.push_back(shared->members.size());
  }
  return sizes;
}

Sizes SharedSizes(const std::vector<Table>& tables) {
  return SharedSizes(PlanOf(Parse(SumsInto(tables))).plan);
}

TEST_CASE("sorts into many tables share launches, and the plan says what that wins") {
  const BackwardGraph graph = Parse(SumsInto(std::vector<Table>(6, {20'000, 8'192})));
  const Planned together = PlanOf(graph), apart = PlanOf(graph, {.disable = {"horizontal"}});
  CHECK(SharedSizes(together.plan) == Sizes{6});
  CHECK(SharedSizes(apart.plan).empty());
  const std::string text = together.plan.Print(together.graph);
  CHECK_THAT(text, ContainsSubstring("shared launch calls=6"));
  CHECK_THAT(text, ContainsSubstring("6 sorts that share launches: "));
  CHECK_THAT(text, ContainsSubstring("6 sorts, each 3 launches, 157 buckets of 128 rows"));
  // Two of three launches' time for each of five, at the least.
  const DeviceSpec spec = *LoadDeviceSpec("h200");
  CHECK(apart.plan.summary.price_ps - together.plan.summary.price_ps >
        10 * (spec.launch_graph_ps + spec.sort_launch_ps));
  CHECK(together.plan.summary.bound_ps <= together.plan.summary.price_ps);
  CHECK(together.plan.summary.launches_saved >= 15);
}

TEST_CASE("sorts share launches with those of their kind, whatever their sizes") {
  CHECK(SharedSizes({{20'000, 8'192}, {30'000, 9'000}}) == Sizes{2});
  CHECK(SharedSizes({{200, 500}, {900, 400}}) == Sizes{2});         // one launch each
  CHECK(SharedSizes({{200, 500}, {30'000, 4'000}}).empty());        // whose blocks fill the device
  CHECK(SharedSizes({{20'000, 8'192}, {300, 500}}).empty());        // three, and one
  CHECK(SharedSizes({{20'000, 8'192}, {300'000, 8'192}}).empty());  // by buckets, by digits
  CHECK(SharedSizes({{20'000, 8'192}, {300'000, 8'192}, {10'000, 8'192}, {400'000, 9'000}}) ==
        Sizes{2, 2});
}

TEST_CASE("sorts that are hidden behind each other's readers stay apart") {
  const Table wide{.rows = 20'000, .indices = 8'192, .width = 4'096};
  CHECK(SharedSizes({wide, wide}).empty());
  // Each reader hides about one sort, and there are many.
  std::vector<Table> tables(12, {20'000, 8'192});
  tables.push_back(wide);
  CHECK(SharedSizes(tables) == Sizes{13});
}

TEST_CASE("as many sorts share launches as these have room for, evenly") {
  const size_t count = kMostSharedSorts + 2;
  CHECK(SharedSizes(std::vector<Table>(count, {20'000, 8'192})) == Sizes{count / 2, count / 2});
}

TEST_CASE("a sort whose indices are made late shares no launches") {
  // As cheap as a copy, where it may not be kept as those of inputs are; behind the sum into
  // another table, whose sort it would wait for itself; behind a product that lasts longer than a
  // sort.
  CHECK(SharedSizes({{20'000, 8'192}, {20'000, 8'192, "add %i0 %i0"}}).empty());
  CHECK(SharedSizes({{20'000, 8'192},
                     {20'000, 8'192, "add %i0 %i0"},
                     {20'000, 8'192, "mul %i0 %i0"},
                     {20'000, 8'192}}) == Sizes{2, 2});
  CHECK(SharedSizes(PlanOf(Parse(R"(
%i = input i64[8192]
%g = input f32[8192,4]
%z = full dtype=f32 shape=[20000,4] value=0.0
%a = index_add %z %i %g axis=0
%s = slice %a axis=0 start=0 stop=8192 step=1
%t = sum %s axes=[1]
%j = cast %t dtype=i64
%b = index_add %z %j %g axis=0
output %a
output %b
)"))
                        .plan)
            .empty());
  CHECK(SharedSizes(PlanOf(Parse(R"(
%i = input i64[8192]
%g = input f32[8192,4]
%x = input f32[8192,8192]
%y = input f32[8192,8192]
%m = matmul %x %y
%t = sum %m axes=[1]
%j = cast %t dtype=i64
%z = full dtype=f32 shape=[20000,4] value=0.0
%a = index_add %z %i %g axis=0
%b = index_add %z %j %g axis=0
output %a
output %b
)"))
                        .plan)
            .empty());
}

TEST_CASE("a run with sorts that share launches gives the sums of one without") {
  const std::vector<Table> tables =
      GENERATE(std::vector<Table>{{70, 5'000}, {90, 6'000}, {70, 5'000}},
               std::vector<Table>{{70, 300}, {900, 41}, {70, 300}},
               std::vector<Table>{{70'000, 5'000}, {80'000, 4'500}});
  const BackwardGraph graph = Parse(SumsInto(tables));
  const std::vector<Values> inputs = RandomInputs(graph, 7);
  RunSetup together, apart;
  together.host.compile.check = true;
  apart.plan.disable.insert("horizontal");
  const auto a = RunOnHost(graph, inputs, together), b = RunOnHost(graph, inputs, apart);
  REQUIRE(a.status().ToString() == "OK");
  REQUIRE(b.status().ToString() == "OK");
  CHECK(SharedSizes(a->planned.plan) == Sizes{tables.size()});
  CHECK(SharedSizes(b->planned.plan).empty());
  CHECK(a->outputs == b->outputs);
}

}  // namespace
}  // namespace retrograd
