// A plan without epilogues: each group of a matmul with an epilogue becomes two groups.
#ifndef RETROGRAD_FUSION_PLAN_SPLIT_EPILOGUES_H_
#define RETROGRAD_FUSION_PLAN_SPLIT_EPILOGUES_H_

#include "fusion/plan/plan.h"

namespace retrograd {

bool HasEpilogues(const FusionPlan& plan);

// Each matmul with an epilogue becomes a library call, which stores its result, and a kernel, which
// reads it; each has its own price. The plan computes the same values. The summary is not changed.
FusionPlan SplitEpilogues(const FusionPlan& plan);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_PLAN_SPLIT_EPILOGUES_H_
