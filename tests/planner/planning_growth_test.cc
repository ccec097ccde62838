// Planning a deeper model costs what its layers cost. Bytes that planning asks the allocator for stand
// for its work: a walk of the whole model for each layer asks for a set as large as the model each
// time.
#include <string>

#include "absl/strings/str_cat.h"
#include "fusion/planner/planner.h"
#include "models/models.h"
#include "tests/catch.h"
#include "tests/support/allocation_count.h"

namespace retrograd {
namespace {

int64_t BytesToPlan(const std::string& model, int64_t layers) {
  const auto graph = BuildModel(absl::StrCat(model, ":layers=", layers));
  INFO(graph.status());
  REQUIRE(graph.ok());
  const auto spec = LoadDeviceSpec("h200");
  REQUIRE(spec.ok());
  const int64_t before = GivenBytes();
  const auto plan = PlanFusion(*graph, *spec);
  REQUIRE(plan.ok());
  return GivenBytes() - before;
}

TEST_CASE("each further layer takes as much work to plan as those before it") {
  constexpr int64_t kFew = 40;
  for (const std::string model : {"transformer", "llama", "norm_stack"}) {
    INFO(model);
    const int64_t few = BytesToPlan(model, kFew);
    const int64_t more = BytesToPlan(model, 2 * kFew) - few;
    const int64_t many = BytesToPlan(model, 16 * kFew) - BytesToPlan(model, 15 * kFew);
    INFO(few << " bytes for the first layers, " << more << " for the next, " << many
             << " for those behind 15 times as many");
    CHECK(many <= 1.5 * static_cast<double>(more));
  }
}

}  // namespace
}  // namespace retrograd
