// A plan for devices that multiply by libraries alone, or nearly: what has an epilogue becomes two
// groups.
#ifndef RETROGRAD_FUSION_PLAN_SPLIT_EPILOGUES_H_
#define RETROGRAD_FUSION_PLAN_SPLIT_EPILOGUES_H_

#include "absl/functional/function_ref.h"
#include "fusion/plan/plan.h"

namespace retrograd {

bool HasEpilogues(const FusionPlan& plan);

// Every product that had an epilogue is stored and read by a kernel of its own, priced as that; the
// plan computes the same values. Its summary stays that of the plan which was chosen.
FusionPlan SplitEpilogues(const FusionPlan& plan);
// The same, but for the groups that `stays` names.
FusionPlan SplitEpilogues(const FusionPlan& plan, absl::FunctionRef<bool(const Call&)> stays);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_PLAN_SPLIT_EPILOGUES_H_
