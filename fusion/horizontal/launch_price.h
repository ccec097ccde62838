// The price of kernels that share a launch, from what each of them costs alone.
//
//   T = launches + max(memory, cache, stores, compute, longest)
//
// memory: the kernels' bytes one after the other, at the bandwidth that all their blocks together
// draw; cache, stores and compute: sums; the four times the joint grid's last wave. longest: no
// kernel is faster than it would be alone. A block needs the most registers and the most shared
// memory of any kernel, so as many blocks fit an SM as of the kernel of which the fewest fit.
// Kernels of several launches share each of them.
#ifndef RETROGRAD_FUSION_HORIZONTAL_LAUNCH_PRICE_H_
#define RETROGRAD_FUSION_HORIZONTAL_LAUNCH_PRICE_H_

#include <vector>

#include "absl/types/span.h"
#include "fusion/device/device_spec.h"
#include "fusion/kernel/templates/registers.h"
#include "fusion/plan/plan.h"

namespace retrograd {

// A kernel alone in its launch.
struct LaunchMember {
  explicit LaunchMember(const Group& group, const DeviceSpec& device);

  KernelIr code;      // without the values: equal for kernels that are the same function
  Schedule schedule;  // of the launch that does the work
  int64_t launches = 1;
  Footprint footprint;
  int64_t ops = 0, operands = 0, stores = 0, reductions = 0;
  int64_t memory_ps = 0, cache_ps = 0, part_sectors_ps = 0, compute_ps = 0;  // of its price
  int64_t body_ps = 0;  // its price without the launches
  int64_t price_ps = 0;
  bool SameFunction(const LaunchMember& other) const {
    return schedule == other.schedule && code == other.code;
  }
};

struct SharedLaunchPrice {
  int64_t ps = 0;
  std::vector<Term> terms;  // if explained
};
SharedLaunchPrice PriceSharedLaunch(absl::Span<const LaunchMember* const> members,
                                    const DeviceSpec& device, bool explain = false);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_HORIZONTAL_LAUNCH_PRICE_H_
