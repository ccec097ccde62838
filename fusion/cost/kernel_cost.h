// Predicted time of a kernel, term by term, in integer picoseconds.
//
//   T = launch + max(max(hbm, cache, stores) * wave, compute * wave) + latency + finalize + spill
//
// Every constant is a field of the DeviceSpec. Integers make sums exact and independent of order.
#ifndef RETROGRAD_FUSION_COST_KERNEL_COST_H_
#define RETROGRAD_FUSION_COST_KERNEL_COST_H_

#include <vector>

#include "fusion/cost/kernel_work.h"
#include "fusion/device/device_spec.h"
#include "fusion/kernel/templates/registers.h"
#include "fusion/plan/plan.h"

namespace retrograd {

struct Price {
  int64_t ps = 0;
  std::vector<Term> terms;
  int64_t read_bytes = 0, written_bytes = 0;  // to and from device memory, each tensor once
  int64_t launches = 1;
  Footprint footprint;
};

// Prices of one kernel under its schedules. What it is made of outlives it.
class KernelPricer {
 public:
  KernelPricer(const KernelIr& ir, const KernelProfile& profile, const DeviceSpec& device);

  // What a compiler reported of the kernel takes the place of the predicted registers, if given.
  Footprint FootprintOf(const Schedule& schedule,
                        const CompiledResources* compiled = nullptr) const;

  // `explain` fills the terms' formulas; the figures are the same without.
  Price Of(const Schedule& schedule, bool explain = false,
           const CompiledResources* compiled = nullptr) const {
    return Of(schedule, FootprintOf(schedule, compiled), explain);
  }
  // With the schedule's footprint, where it is known.
  Price Of(const Schedule& schedule, const Footprint& footprint, bool explain = false) const;

 private:
  const KernelIr& ir_;
  const KernelProfile& profile_;
  const DeviceSpec& device_;
  KernelWork work_;
};

// Of `fresh` bytes (written earlier in the same backward), those that a kernel finds in the
// last-level cache. What was touched since is taken to be what the kernel itself moves, so that the
// price of a kernel does not depend on the others: all of them up to cache_kept_share of the cache,
// none from cache_lost_share, linear in between (caches keep recent lines approximately, and
// something else always runs).
int64_t CachedBytes(int64_t fresh, int64_t moved, const DeviceSpec& device);

// Whether blocks share the memory, so that few of them are faster. Those that hold their columns or
// have tiles wait part after part, and take as long in a last wave as in any other.
bool BlocksShareMemory(const Schedule& schedule);

// Whether they share caches and units as well. What threads go through at sorted positions takes
// them as long, whoever else is there: they wait for each load that follows from another.
bool BlocksShareUnits(const Schedule& schedule);

// What any kernel of ours takes, however little it does: its launch, and its first block.
int64_t LeastKernelPs(const DeviceSpec& device);

// bytes / (bytes per second), in picoseconds, rounded up.
int64_t TransferPs(int64_t bytes, int64_t bytes_per_s);

// A kernel that copies so many bytes from one layout to another, at full bandwidth.
int64_t CopyPs(int64_t bytes, const DeviceSpec& device);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_COST_KERNEL_COST_H_
