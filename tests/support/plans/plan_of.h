// Plans, and device specs by their names, of tests that look at prices.
#ifndef RETROGRAD_TESTS_SUPPORT_PLANS_PLAN_OF_H_
#define RETROGRAD_TESTS_SUPPORT_PLANS_PLAN_OF_H_

#include <string>
#include <utility>

#include "fusion/device/device_spec.h"
#include "fusion/planner/planner.h"
#include "tests/catch.h"

namespace retrograd {

inline DeviceSpec Device(const std::string& name) {
  auto spec = LoadDeviceSpec(name);
  INFO(spec.status());
  REQUIRE(spec.ok());
  return *std::move(spec);
}

inline Planned PlanOf(const BackwardGraph& graph, const DeviceSpec& device,
                      bool decisions = false) {
  auto planned = PlanFusion(graph, device, {.decisions = decisions});
  INFO(planned.status());
  REQUIRE(planned.ok());
  return *std::move(planned);
}

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_PLANS_PLAN_OF_H_
