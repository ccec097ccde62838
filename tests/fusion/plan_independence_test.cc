// Any legal plan gives the same gradients: random graphs, retyped to float64, through the generated
// host kernels under every way of planning, compared with the reference.
//
// Tolerance: |kernel - reference| <= 1e-10 * A, where A is the same expression over absolute
// values; float64 leaves a dataflow mistake nowhere to hide. The kernels run in the checking build.
#include "graph/passes/retype.h"
#include "graph/text/text.h"
#include "tests/catch.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/plans/compare_outputs.h"
#include "tests/support/plans/run_plan.h"
#include "tests/support/plans/ways_of_planning.h"

namespace retrograd {
namespace {

void Compare(const BackwardGraph& graph, const std::vector<Values>& inputs, const RunSetup& setup,
             double tolerance) {
  auto run = RunOnHost(graph, inputs, setup);
  INFO(Print(graph));
  REQUIRE(run.status().ToString() == "OK");
  INFO(run->planned.plan.Print(run->planned.graph));
  CHECK(CompareWithReference(graph, inputs, run->outputs, tolerance).ToString() == "OK");
}

// Every way of planning meets several graphs; each graph a few ways, so that the whole stays quick.
TEST_CASE("any legal plan gives the same gradients") {
  const std::vector<Way> ways = WaysOfPlanning(1);
  const int per_graph = 2;
  for (uint32_t seed = 1; seed <= 4 * ways.size(); ++seed) {
    auto retyped =
        RetypeToFloat64(RandomGraph(seed, {.dtypes = RandomGraphOptions::kMixed, .max_ops = 24}));
    REQUIRE(retyped.status().ToString() == "OK");
    const BackwardGraph& graph = *retyped;
    const std::vector<Values> inputs = RandomInputs(graph, seed);
    for (int k = 0; k < per_graph; ++k) {
      const Way way = WaysOfPlanning(seed)[(seed * per_graph + k) % ways.size()];
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
    Compare(graph, RandomInputs(graph, seed), CheckedSetup(seed), 16e-6);
  }
}

}  // namespace
}  // namespace retrograd
