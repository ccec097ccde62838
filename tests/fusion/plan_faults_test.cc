// The plan checker accepts what planners make and refuses what has been tampered with. Faults are
// planted into plans of random graphs; those that change nothing (plan_oracle.h) do not count.
//
// RETROGRAD_PLAN_FAULTS=100000 plants so many instead of 10,000.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "absl/strings/str_cat.h"
#include "fusion/planner/planner.h"
#include "graph/proto/proto.h"
#include "graph/text/text.h"
#include "tests/catch.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/plans/plan_faults.h"
#include "tests/support/plans/plan_oracle.h"

namespace retrograd {
namespace {

// Grouped queries, a bias, heads behind a permute; weight gradients that add up.
constexpr absl::string_view kAttention = R"(
%dy = input kind=tangent  f32[2,5,12]
%q = input kind=saved  f32[2,4,5,3]
%k = input kind=saved  f32[2,2,6,3]
%v = input kind=saved  f32[2,2,6,3]
%o = input kind=saved  f32[2,4,5,3]
%l = input kind=saved  f32[2,4,5]
%b = input kind=saved  f32[1,1,5,6]
%split = reshape %dy shape=[2,5,4,3]
%do = permute %split perm=[0,2,1,3]
%grad = attention_backward %do %q %k %v %o %l %b scale=0.5 causal=1
%back = permute %grad.0 perm=[0,2,1,3]
%dx = reshape %back shape=[10,12]
%x = input kind=saved  f32[10,7]
%xt = permute %x perm=[1,0]
%dw = matmul %xt %dx
%y = input kind=saved  f32[10,7]
%yt = permute %y perm=[1,0]
%dw2 = matmul %yt %dx
%sum = add %dw %dw2
output %sum
output %grad.1
output %grad.2 strides=[36,3,6,1]
)";

// An embedding's gradient, look-ups, counting masks, pads and joins.
constexpr absl::string_view kIndexed = R"(
%dy = input kind=tangent  f32[6,5,8]
%index = input kind=saved  i64[6,5]
%table = input kind=parameter  f32[11,8]
%i2 = input kind=saved  i32[7]
%zeros = full dtype=f32 shape=[11,8] value=0
%half = full dtype=f32 shape=[] value=0.5
%scaled = mul %dy %half
%dtable = index_add %zeros %index %scaled axis=0
%rows = index_select %table %i2 axis=0
%row = iota dtype=i64 shape=[7,8] axis=0 start=0 step=1
%column = iota dtype=i64 shape=[7,8] axis=1 start=-1 step=2
%mask = le %column %row
%none = full dtype=f32 shape=[] value=0
%masked = where %mask %rows %none
%padded = pad %masked low=[1,0] high=[0,3] value=0.25
%left = slice %padded axis=1 start=0 stop=5 step=1
%right = slice %padded axis=1 start=5 stop=11 step=1
%turned = neg %right
%joined = cat %turned %left axis=1
%total = sum %joined axes=[0]
%narrow = cast %joined dtype=bf16
%shifted = add %narrow %narrow
%above = gt %shifted %narrow
output %dtable
output %joined
output %total
output %above
)";

struct Planted {
  BackwardGraph graph;
  FusionPlan plan;
};

// Graphs and ways of planning that between them give every template, splits, scatters, absorbed
// casts and accumulates.
Planted Plan(uint32_t seed) {
  const DeviceSpec device = *LoadDeviceSpec(seed % 3 == 2 ? "mi300x" : "h200");
  PlanOptions options;
  options.decisions = false;
  if (seed % 3 != 0) options.disable.insert("thin_matmuls");
  if (seed % 4 >= 2) options.random_schedules = seed;
  if (seed % 4 == 3) options.search.random_seed = seed;
  RandomGraphOptions shape;
  shape.max_ops = 25;
  shape.max_elements = 300;
  if (seed % 8 == 5) {  // long enough for splits and tiles
    shape.max_extent = 70;
    shape.max_elements = 4000;
    shape.max_ops = 10;
  }
  const absl::StatusOr<BackwardGraph> attention = ParseGraph(kAttention);
  REQUIRE(attention.status().ToString() == "OK");
  const absl::StatusOr<BackwardGraph> indexed = ParseGraph(kIndexed);
  REQUIRE(indexed.status().ToString() == "OK");
  auto planned = PlanFusion(seed % 8 == 4   ? *attention
                            : seed % 8 == 6 ? *indexed
                                            : RandomGraph(seed, shape),
                            device, options);
  REQUIRE(planned.status().ToString() == "OK");
  return {std::move(planned->graph), std::move(planned->plan)};
}

int Wanted() {
  const char* number = std::getenv("RETROGRAD_PLAN_FAULTS");
  return number == nullptr ? 10'000 : std::atoi(number);
}

TEST_CASE("the checker accepts the plans of random graphs, however they were made") {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    INFO("seed " << seed);
    const Planted p = Plan(seed);
    INFO(Print(p.graph) << p.plan.Print(p.graph));
    CHECK(p.plan.Verify(p.graph).ToString() == "OK");
  }
}

TEST_CASE("the checker accepts the plan of every captured graph") {
  int graphs = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(RETROGRAD_SOURCE_DIR "/models/graphs")) {
    if (entry.path().extension() != ".pb") continue;
    INFO(entry.path().string());
    ++graphs;
    const auto graph = LoadGraph(entry.path().string());
    REQUIRE(graph.status().ToString() == "OK");
    const auto planned = PlanFusion(*graph, *LoadDeviceSpec("h200"), {.decisions = false});
    REQUIRE(planned.status().ToString() == "OK");
    CHECK(planned->plan.Verify(planned->graph).ToString() == "OK");
  }
  CHECK(graphs >= 10);
}

TEST_CASE("at least 99% of planted faults are caught") {
  constexpr int kFaultsPerPlan = 25;
  struct Count {
    int planted = 0, harmless = 0, missed = 0;
  };
  std::map<PlanFault, Count> counts;
  std::vector<std::string> missed;
  const int wanted = Wanted();
  int planted = 0;
  for (uint32_t seed = 0; planted < wanted; ++seed) {
    const Planted p = Plan(seed);
    const PlanOracle oracle(p.graph, p.plan, seed);
    std::mt19937 rng(seed);
    for (int i = 0; i < kFaultsPerPlan && planted < wanted;) {
      const auto fault = static_cast<PlanFault>(rng() % static_cast<unsigned>(PlanFault::kCount));
      const std::optional<FusionPlan> spoiled = PlantFault(p.graph, p.plan, fault, rng);
      if (!spoiled) continue;
      ++i;
      if (!oracle.Matters(fault, *spoiled)) {
        ++counts[fault].harmless;
        continue;
      }
      ++planted;
      ++counts[fault].planted;
      if (!spoiled->Verify(p.graph).ok()) continue;
      ++counts[fault].missed;
      missed.push_back(absl::StrCat("seed ", seed, ", fault ", i, ": ", Name(fault)));
    }
  }
  std::printf("%d faults that matter, %zu missed\n", planted, missed.size());
  for (const auto& [fault, count] : counts) {
    std::printf("  %-22s %5d planted %4d missed %5d harmless\n", Name(fault), count.planted,
                count.missed, count.harmless);
  }
  for (const std::string& line : missed) std::printf("missed: %s\n", line.c_str());
  CHECK(static_cast<int>(missed.size()) * 100 <= planted);
  // Each kind has had its turn.
  if (wanted >= 10'000) CHECK(counts.size() == static_cast<size_t>(PlanFault::kCount));
}

}  // namespace
}  // namespace retrograd
