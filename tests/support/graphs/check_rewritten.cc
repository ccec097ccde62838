#include "tests/support/graphs/check_rewritten.h"

#include "graph/reference/reference.h"
#include "tests/catch.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/plans/run_plan.h"

namespace retrograd {

void CheckRewritten(const BackwardGraph& g, const BackwardGraph& rewritten,
                    const BackwardGraph& run, double bound) {
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    INFO("seed " << seed);
    const std::vector<Values> inputs = RandomInputs(g, seed);
    const auto wanted = Evaluate(g, inputs, {.mode = ReferenceOptions::kFloat64});
    const auto found = Evaluate(rewritten, inputs, {.mode = ReferenceOptions::kFloat64});
    REQUIRE(found.status().ToString() == "OK");
    RunSetup setup;
    setup.host.compile.check = true;
    const auto ran = RunOnHost(run, inputs, setup);
    REQUIRE(ran.status().ToString() == "OK");
    for (size_t o = 0; o < g.outputs().size(); ++o) {
      const Values& want = (*wanted)[g.value_index(*g.outputs()[o].value)];
      const Values& reference = (*found)[rewritten.value_index(*rewritten.outputs()[o].value)];
      REQUIRE(ran->outputs[o].size() == want.size());
      for (size_t i = 0; i < want.size(); ++i) {
        CHECK(reference[i] == Approx(want[i]).epsilon(1e-12).margin(1e-12));
        CHECK(ran->outputs[o][i] == Approx(want[i]).epsilon(bound).margin(bound));
      }
    }
  }
}

}  // namespace retrograd
