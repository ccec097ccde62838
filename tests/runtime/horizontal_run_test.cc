// Graphs run with and without shared launches, in float64, through the checking host build: the
// same gradients to 1e-10, and both those of the reference.
#include <cmath>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "graph/passes/retype.h"
#include "graph/text/text.h"
#include "tests/catch.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/plans/run_plan.h"

namespace retrograd {
namespace {

RunSetup Checked(uint32_t seed, bool shared) {
  RunSetup setup;
  setup.plan.disable.insert("fusion");  // many small kernels
  if (!shared) setup.plan.disable.insert("horizontal");
  if (seed % 2 == 0) setup.plan.disable.insert("thin_matmuls");
  setup.compile.schedule.streams = seed % 3 == 0 ? 3 : 1;
  setup.compile.memory.overwrite_donated = seed % 2 == 0;
  setup.host.compile.check = true;
  setup.host.seed = seed;
  setup.program.order_seed = seed;
  return setup;
}

// "" if all outputs agree to 1e-10 of the magnitude of their terms.
std::string Difference(const BackwardGraph& graph, const std::vector<Values>& want,
                       const std::vector<Values>& got, const std::vector<Values>& scale) {
  for (size_t o = 0; o < graph.outputs().size(); ++o) {
    if (!graph.outputs()[o].value) continue;
    const Values& size = scale[graph.value_index(*graph.outputs()[o].value)];
    for (size_t i = 0; i < want[o].size(); ++i) {
      const double error = std::fabs(got[o][i] - want[o][i]);
      const bool same = error <= 1e-10 * std::max(size[i], 1e-30) || got[o][i] == want[o][i] ||
                        (std::isnan(got[o][i]) && std::isnan(want[o][i]));
      if (!same) {
        return absl::StrCat("output ", o, " element ", i, ": ", got[o][i], " for ", want[o][i]);
      }
    }
  }
  return "";
}

// RETROGRAD_SHARED_LAUNCH_SEEDS runs more of them.
int Seeds() {
  const char* text = std::getenv("RETROGRAD_SHARED_LAUNCH_SEEDS");
  int seeds = 0;
  return text != nullptr && absl::SimpleAtoi(text, &seeds) ? seeds : 12;
}

TEST_CASE("shared launches change no gradient") {
  int64_t saved = 0;
  for (int seed = 1; seed <= Seeds(); ++seed) {
    auto graph = RetypeToFloat64(RandomGraph(seed, {.max_ops = 30, .contractions = seed % 2 == 0}));
    REQUIRE(graph.ok());
    INFO("seed " << seed << "\n" << Print(*graph));
    const std::vector<Values> inputs = RandomInputs(*graph, seed);
    auto shared = RunOnHost(*graph, inputs, Checked(seed, true));
    auto apart = RunOnHost(*graph, inputs, Checked(seed, false));
    REQUIRE(shared.status().ToString() == "OK");
    REQUIRE(apart.status().ToString() == "OK");
    saved += shared->planned.plan.summary.launches_saved;
    auto all = Evaluate(*graph, inputs, {.mode = ReferenceOptions::kFloat64, .keep_all = true});
    REQUIRE(all.ok());
    auto scale = Magnitudes(*graph, *all);
    REQUIRE(scale.ok());
    std::vector<Values> reference(graph->outputs().size());
    for (size_t o = 0; o < reference.size(); ++o) {
      const auto& value = graph->outputs()[o].value;
      if (value) reference[o] = (*all)[graph->value_index(*value)];
    }
    CHECK(Difference(*graph, apart->outputs, shared->outputs, *scale) == "");
    CHECK(Difference(*graph, reference, shared->outputs, *scale) == "");
  }
  CHECK(saved >= 2 * Seeds());
}

}  // namespace
}  // namespace retrograd
