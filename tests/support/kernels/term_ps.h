// One term of what a kernel costs.
#ifndef RETROGRAD_TESTS_SUPPORT_KERNELS_TERM_PS_H_
#define RETROGRAD_TESTS_SUPPORT_KERNELS_TERM_PS_H_

#include "fusion/cost/kernel_cost.h"
#include "tests/support/plans/plan_of.h"

namespace retrograd {

// Picoseconds on an H200; 0 where the price has no such term.
inline int64_t TermPs(const KernelIr& ir, const Schedule& schedule, absl::string_view name) {
  const DeviceSpec device = Device("h200");
  const KernelProfile profile = ProfileKernel(ir, Classify(ir));
  const KernelPricer pricer(ir, profile, device);
  for (const Term& term : pricer.Of(schedule, /*explain=*/true).terms) {
    if (term.name == name) return term.ps;
  }
  return 0;
}

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_KERNELS_TERM_PS_H_
