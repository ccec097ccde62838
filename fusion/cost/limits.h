// What no fused kernel may be: limits as values, each with a code, a reason to exist and a number.
// Whether a fusion pays is the price's answer alone. A group of a single op obeys none of the
// numbers, so that every graph has a plan.
#ifndef RETROGRAD_FUSION_COST_LIMITS_H_
#define RETROGRAD_FUSION_COST_LIMITS_H_

#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "fusion/device/device_spec.h"
#include "fusion/kernel/ir/kernel_ir.h"
#include "fusion/kernel/templates/registers.h"

namespace retrograd {

struct Limit {
  absl::string_view name;
  absl::string_view why;
  int64_t normal;     // the bound; 0: the device's own number
  int64_t tightened;  // under --tighten NAME
};

// Adding a limit: a row here, and its check in limits.cc.
inline constexpr Limit kLimits[] = {
    {"ops", "keeps the compiler's time for one kernel within seconds", 4096, 3},
    {"operands", "pointers and loads of one kernel", 48, 6},
    {"stores", "streams that one kernel writes at once", 24, 1},
    {"reductions", "accumulators and shared-memory rounds of one kernel", 24, 1},
    {"axes", "index arithmetic of one kernel", 10, 2},
    {"mixed_reductions", "row and column sums in one pass: 1 where a template walks both", 1, 0},
    {"registers", "a kernel that spills pays for it in every element", 0, 64},
    {"shared_memory", "static shared memory of a block", 0, 2048},
};

// A kernel of more ops than kShortOps may have so many times the operands and stores: an estimate,
// by which spherical harmonics' kernels fit.
inline constexpr int64_t kShortOps = 64, kLongKernelsShare = 5;

// The bounds in force.
class Limits {
 public:
  static absl::StatusOr<Limits> Make(const DeviceSpec& device,
                                     const absl::flat_hash_set<std::string>& tighten);

  // A broken limit with its sentence, or an empty name.
  struct Verdict {
    std::string limit, reason;
    bool ok() const { return limit.empty(); }
  };
  Verdict CheckOps(int64_t ops) const;
  Verdict CheckKernel(const KernelIr& ir, const KernelProfile& profile, int64_t ops = 1) const;
  Verdict CheckSchedule(const Schedule& schedule, const Footprint& footprint) const;
  bool Allows(const Footprint& footprint) const;  // CheckSchedule without the sentence
  int64_t Bound(absl::string_view name) const;    // in force, of a row of kLimits
  bool any_tightened() const { return any_tightened_; }

 private:
  std::vector<int64_t> bounds_;  // parallel to kLimits
  bool any_tightened_ = false;
};

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_COST_LIMITS_H_
