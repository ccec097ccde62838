// Whether a group's library call works on the elements that the graph names: operand by operand and
// at single places, from shapes and strides alone. Part of the plan checker, which shares no code
// with the planner.
#ifndef RETROGRAD_FUSION_VERIFY_CALL_CHECK_H_
#define RETROGRAD_FUSION_VERIFY_CALL_CHECK_H_

#include "absl/status/status.h"
#include "fusion/plan/plan.h"

namespace retrograd {

// Of a call without an epilogue. Errors begin "P5" (values and types), "P6" (places) or "P8".
absl::Status CheckCall(const BackwardGraph& graph, const FusionPlan& plan, const Group& group,
                       const Call& call);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_VERIFY_CALL_CHECK_H_
