// Why two ops can never share a kernel, before any price: what stands between them.
#ifndef RETROGRAD_FUSION_PLANNER_CAN_SHARE_KERNEL_H_
#define RETROGRAD_FUSION_PLANNER_CAN_SHARE_KERNEL_H_

#include "absl/status/status.h"
#include "fusion/planner/planning_context.h"

namespace retrograd {

// OK if one region holds both. Otherwise the reason: an op that no kernel of ours computes, the
// library call between them, the one that only one of them waits for, or that they share nothing.
absl::Status CanMeet(const PlanningContext& context, NodeId a, NodeId b);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_PLANNER_CAN_SHARE_KERNEL_H_
