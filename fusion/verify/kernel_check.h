// Whether a group's kernel computes what the graph says, element by element, and whether its
// schedule walks all of it. Part of the plan checker: no code in common with what builds and prices
// kernels.
#ifndef RETROGRAD_FUSION_VERIFY_KERNEL_CHECK_H_
#define RETROGRAD_FUSION_VERIFY_KERNEL_CHECK_H_

#include "absl/status/status.h"
#include "fusion/plan/plan.h"

namespace retrograd {

// The kernel reads and writes what the group lists, where the layouts put it, and every element
// that it stores (all of them where they are few, else a fixed sample) is made from memory by the
// ops of `nodes` and `recomputed` as in the graph. Errors begin "P5" or "P6".
absl::Status CheckKernel(const BackwardGraph& graph, const FusionPlan& plan, const Group& group,
                         const KernelBody& body);

// The schedule fits the kernel's reductions, covers its points, and has the workspace that it
// needs.
absl::Status CheckSchedule(const Group& group, const KernelBody& body);

// No pair of in_place lets a point read what another has overwritten.
absl::Status CheckInPlace(const Group& group, const KernelBody& body);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_VERIFY_KERNEL_CHECK_H_
