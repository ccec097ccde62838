// How far from optimal a plan is known to be: the search is exact on every region of real models
// that is not too large for it.
#include <string>

#include "absl/strings/str_cat.h"
#include "fusion/planner.h"
#include "models/models.h"
#include "tests/catch.h"

namespace retrograd {
namespace {

constexpr int64_t kExactAtoms = 24;

TEST_CASE("the gap of every model's plan is printed, and is zero where regions are of up to 24 atoms") {
  const auto spec = LoadDeviceSpec("h200");
  REQUIRE(spec.ok());
  std::string table = "gap ps  of price ps  largest region, atoms  model\n";
  for (const Model& model : AllModels()) {
    INFO(model.name);
    const absl::StatusOr<BackwardGraph> graph = BuildModel(model.name);
    REQUIRE(graph.ok());
    const absl::StatusOr<Planned> planned = PlanFusion(*graph, *spec, {.decisions = false});
    INFO(planned.status());
    REQUIRE(planned.ok());
    const PlanSummary& s = planned->plan.summary;
    absl::StrAppend(&table, s.gap_ps, "  ", s.price_ps, "  ", s.largest_region_atoms, "  ",
                    model.name, "\n");
    if (s.largest_region_atoms <= kExactAtoms) CHECK(s.gap_ps == 0);
    CHECK(s.gap_ps >= 0);
    CHECK(s.gap_ps < s.price_ps);
  }
  WARN(table);
}

}  // namespace
}  // namespace retrograd
