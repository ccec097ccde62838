// Checks cats whose parts lie in place.
#ifndef RETROGRAD_FUSION_VERIFY_CONCAT_IN_PLACE_CHECK_H_
#define RETROGRAD_FUSION_VERIFY_CONCAT_IN_PLACE_CHECK_H_

#include "absl/status/status.h"
#include "fusion/plan/plan.h"

namespace retrograd {

// P5, P6: each part lies where the whole has it, and is nothing but that part. Shares no code with
// the planner.
absl::Status CheckAlias(const BackwardGraph& graph, const FusionPlan& plan, const Group& group,
                        const Alias& join);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_VERIFY_CONCAT_IN_PLACE_CHECK_H_
