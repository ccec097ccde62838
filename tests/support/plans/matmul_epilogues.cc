#include "tests/support/plans/matmul_epilogues.h"

#include <utility>

#include "tests/catch.h"

namespace retrograd {

DeviceSpec EagerEpilogues(std::vector<DType> dtypes, int most_reads, int most_stores) {
  DeviceSpec spec = *LoadDeviceSpec("h200");
  spec.matmul_epilogues = {{.name = "any",
                            .product_ppm = 1'000'000,
                            .pass_ppm = 1,
                            .max_reads = most_reads,
                            .max_stores = most_stores,
                            .dtypes = std::move(dtypes)}};
  return spec;
}

int Epilogues(const FusionPlan& plan) {
  int count = 0;
  for (const Group& group : plan.groups) count += (FusedCallOf(group) != nullptr);
  return count;
}

Planned PlanWith(const BackwardGraph& graph, const DeviceSpec& device, const PlanOptions& options) {
  auto planned = PlanFusion(graph, device, options);
  INFO(planned.status());
  REQUIRE(planned.ok());
  REQUIRE(planned->plan.Verify(planned->graph).ToString() == "OK");
  return *std::move(planned);
}

}  // namespace retrograd
