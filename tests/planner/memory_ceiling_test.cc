// Ceilings of memory: what a refusal names as the least is a ceiling that is obeyed, and no lower
// one is.
#include "fusion/planner/memory_ceiling.h"

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "fusion/planner/planner.h"
#include "models/models.h"
#include "tests/catch.h"
#include "tests/support/graphs/random_graph.h"

namespace retrograd {
namespace {

absl::StatusOr<Planned> PlanUnderCeiling(const BackwardGraph& graph, const DeviceSpec& device,
                                         int64_t bytes) {
  return PlanFusion(graph, device, {.decisions = false, .max_memory_bytes = bytes});
}

// The least that a refusal names; -1 if it names none.
int64_t LeastNamed(absl::string_view refusal) {
  constexpr absl::string_view kBefore = "the least was ";
  const size_t at = refusal.find(kBefore);
  if (at == absl::string_view::npos) return -1;
  refusal.remove_prefix(at + kBefore.size());
  int64_t bytes = -1;
  return absl::SimpleAtoi(refusal.substr(0, refusal.find(',')), &bytes) ? bytes : -1;
}

void CheckLeast(const BackwardGraph& graph, const DeviceSpec& device) {
  const auto refused = PlanUnderCeiling(graph, device, 1);
  REQUIRE(refused.status().code() == absl::StatusCode::kResourceExhausted);
  INFO(refused.status());
  const int64_t least = LeastNamed(refused.status().message());
  REQUIRE(least > 1);
  const auto obeyed = PlanUnderCeiling(graph, device, least);
  REQUIRE(obeyed.status().ToString() == "OK");
  CHECK(obeyed->plan.summary.peak_bytes == least);
  CHECK(obeyed->plan.Verify(obeyed->graph).ToString() == "OK");
  const auto lower = PlanUnderCeiling(graph, device, least - 1);
  REQUIRE(lower.status().code() == absl::StatusCode::kResourceExhausted);
  CHECK(LeastNamed(lower.status().message()) == least);
}

TEST_CASE("the least ceiling that a refusal names is obeyed, and one byte less is refused") {
  const auto device = LoadDeviceSpec("h200");
  REQUIRE(device.ok());
  for (const char* name : {"golf_tiny", "gpt2_tiny", "norm_stack:layers=3",
                           "transformer:layers=2,d=64,heads=4,tokens=256,vocab=300"}) {
    INFO(name);
    const auto graph = BuildModel(name);
    REQUIRE(graph.status().ToString() == "OK");
    CheckLeast(*graph, *device);
  }
}

TEST_CASE("the least ceiling of random graphs is obeyed, and one byte less is refused") {
  const auto device = LoadDeviceSpec("mi300x");
  REQUIRE(device.ok());
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    INFO("seed " << seed);
    CheckLeast(RandomGraph(seed), *device);
  }
}

}  // namespace
}  // namespace retrograd
