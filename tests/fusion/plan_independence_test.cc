// Any legal plan gives the same gradients: random graphs, retyped to float64, through the generated
// host kernels under every way of planning, compared with the reference.
//
// Tolerance: |kernel - reference| <= 1e-10 * A, where A is the same expression over absolute
// values; float64 leaves a dataflow mistake nowhere to hide. The kernels run in the checking build.
#include <cmath>

#include "fusion/cost/limits.h"
#include "graph/passes/retype.h"
#include "graph/text/text.h"
#include "tests/catch.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/plans/run_plan.h"

namespace retrograd {
namespace {

void Compare(const BackwardGraph& graph, const std::vector<Values>& inputs, const RunSetup& setup,
             double tolerance) {
  auto run = RunOnHost(graph, inputs, setup);
  INFO(Print(graph));
  REQUIRE(run.status().ToString() == "OK");
  auto all = Evaluate(graph, inputs, {.mode = ReferenceOptions::kFloat64, .keep_all = true});
  REQUIRE(all.ok());
  auto scale = Magnitudes(graph, *all);
  REQUIRE(scale.ok());
  for (size_t o = 0; o < graph.outputs().size(); ++o) {
    if (!graph.outputs()[o].value) continue;
    const size_t v = graph.value_index(*graph.outputs()[o].value);
    REQUIRE(run->outputs[o].size() == (*all)[v].size());
    for (size_t i = 0; i < (*all)[v].size(); ++i) {
      const double want = (*all)[v][i], got = run->outputs[o][i];
      const double bound = tolerance * std::max((*scale)[v][i], 1e-30);
      if (!(std::fabs(got - want) <= bound) && !(std::isnan(got) && std::isnan(want)) &&
          !(std::isinf(want) && got == want)) {
        INFO("output " << o << " element " << i << ": " << got << " for " << want << "\n"
                       << run->planned.plan.Print(run->planned.graph));
        FAIL("a gradient differs");
      }
    }
  }
}

struct Way {
  std::string name;
  RunSetup setup;
};

RunSetup Checked(uint32_t seed) {
  RunSetup setup;
  setup.host.compile.check = true;
  setup.host.seed = seed;
  setup.program.order_seed = seed;
  return setup;
}

std::vector<Way> Ways(uint32_t seed) {
  std::vector<Way> ways;
  ways.push_back({"as planned", Checked(seed)});
  for (const Feature& f : kFeatures) {
    ways.push_back({"disable " + std::string(f.name), Checked(seed)});
    ways.back().setup.plan.disable.insert(std::string(f.name));
  }
  for (const Limit& l : kLimits) {
    ways.push_back({"tighten " + std::string(l.name), Checked(seed)});
    ways.back().setup.plan.tighten.insert(std::string(l.name));
  }
  for (int i = 0; i < 6; ++i) {
    ways.push_back({"random partition and schedules", Checked(seed)});
    ways.back().setup.plan.search.random_seed = seed * 31 + i + 1;
    ways.back().setup.plan.random_schedules = seed * 17 + i + 1;
  }
  ways.push_back({"three streams", Checked(seed)});
  ways.back().setup.compile.schedule.streams = 3;
  ways.push_back({"no memory reuse", Checked(seed)});
  ways.back().setup.compile.memory.reuse = false;
  ways.push_back({"mi300x, wavefronts of 64", Checked(seed)});
  ways.back().setup.device = "mi300x";
  ways.back().setup.host.compile.warp = 64;
  ways.push_back({"epilogues, wherever a kernel could be one", Checked(seed)});
  ways.back().setup.spec = *LoadDeviceSpec("h200");
  ways.back().setup.spec->matmul_epilogues = {{.name = "any",
                                               .product_ppm = 1'000'000,
                                               .pass_ppm = 1,
                                               .max_reads = 40,
                                               .max_stores = 40,
                                               .dtypes = {DType::kFp64}}};
  ways.push_back(ways.back());
  ways.back().name = "epilogues, random partition and schedules";
  ways.back().setup.plan.search.random_seed = seed * 29 + 1;
  ways.back().setup.plan.random_schedules = seed * 19 + 1;
  return ways;
}

// Every way of planning meets several graphs; each graph a few ways, so that the whole stays quick.
TEST_CASE("any legal plan gives the same gradients") {
  const std::vector<Way> ways = Ways(1);
  const int per_graph = 2;
  for (uint32_t seed = 1; seed <= 4 * ways.size(); ++seed) {
    auto retyped =
        RetypeToFloat64(RandomGraph(seed, {.dtypes = RandomGraphOptions::kMixed, .max_ops = 24}));
    REQUIRE(retyped.status().ToString() == "OK");
    const BackwardGraph& graph = *retyped;
    const std::vector<Values> inputs = RandomInputs(graph, seed);
    for (int k = 0; k < per_graph; ++k) {
      const Way way = Ways(seed)[(seed * per_graph + k) % ways.size()];
      INFO("seed " << seed << ", " << way.name);
      Compare(graph, inputs, way.setup, 1e-10);
    }
  }
}

TEST_CASE("fp32 graphs stay within the fp32 tolerance of the reference") {
  for (uint32_t seed = 500; seed < 530; ++seed) {
    const BackwardGraph graph =
        RandomGraph(seed, {.dtypes = RandomGraphOptions::kFp32, .max_ops = 16});
    INFO("seed " << seed);
    // Every op of a chain adds its own rounding: 1e-6 an op, at most 16 of them in a row.
    Compare(graph, RandomInputs(graph, seed), Checked(seed), 16e-6);
  }
}

}  // namespace
}  // namespace retrograd
