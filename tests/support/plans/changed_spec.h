// A device that differs from a known one in a few numbers.
#ifndef RETROGRAD_TESTS_SUPPORT_PLANS_CHANGED_SPEC_H_
#define RETROGRAD_TESTS_SUPPORT_PLANS_CHANGED_SPEC_H_

#include <string>
#include <vector>

#include "fusion/device/device_numbers.h"
#include "fusion/device/device_spec.h"
#include "tests/catch.h"

namespace retrograd {

inline DeviceSpec ChangedSpec(const std::string& name, const std::vector<DeviceNumber>& numbers) {
  const auto changed = WithDeviceNumbers(*ReadDeviceSpec(name), name, numbers);
  REQUIRE(changed.ok());
  const auto spec = ParseDeviceSpec(*changed, name);
  REQUIRE(spec.ok());
  return *spec;
}

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_PLANS_CHANGED_SPEC_H_
