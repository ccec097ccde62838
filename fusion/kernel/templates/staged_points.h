// Pointwise kernels whose blocks copy the rows of their points into shared memory first
// (fusion/kernel/ir/point_rows.h): a thread makes one point.
#ifndef RETROGRAD_FUSION_KERNEL_TEMPLATES_STAGED_POINTS_H_
#define RETROGRAD_FUSION_KERNEL_TEMPLATES_STAGED_POINTS_H_

#include "fusion/kernel/templates/registers.h"

namespace retrograd {

inline bool StagesPoints(const Schedule& s) {
  return s.kind == Template::kPointwise && s.staged > 0;
}

// Shared memory that a block of launch number `launch` declares in its text.
int64_t StagedPointBytes(const KernelIr& ir, const KernelProfile& profile, const Schedule& schedule,
                         int64_t launch);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_TEMPLATES_STAGED_POINTS_H_
