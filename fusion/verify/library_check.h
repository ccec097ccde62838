// Whether a group's library call multiplies, or attends to, the elements that the graph names:
// operand by operand and at single places, from shapes and strides alone. Part of the plan checker.
#ifndef RETROGRAD_FUSION_VERIFY_LIBRARY_CHECK_H_
#define RETROGRAD_FUSION_VERIFY_LIBRARY_CHECK_H_

#include "absl/status/status.h"
#include "fusion/plan/plan.h"

namespace retrograd {

// Errors begin "P5" (values and types) or "P6" (places).
absl::Status CheckMatMul(const BackwardGraph& graph, const FusionPlan& plan, const Group& group,
                         const MatMulCall& call);
absl::Status CheckAttention(const BackwardGraph& graph, const FusionPlan& plan, const Group& group,
                            const AttentionCall& call);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_VERIFY_LIBRARY_CHECK_H_
