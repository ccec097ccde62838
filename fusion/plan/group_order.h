// A topological order of a plan's groups.
#ifndef RETROGRAD_FUSION_PLAN_GROUP_ORDER_H_
#define RETROGRAD_FUSION_PLAN_GROUP_ORDER_H_

#include <vector>

#include "fusion/plan/plan.h"

namespace retrograd {

enum class GroupOrder {
  kProgram,      // the ready group with the lowest last op first
  kLeastMemory,  // the ready group that adds least to what is alive first
};

// Moves the groups into the plan and numbers their ops. Each reads what others store: the result
// has no reader before its writer.
void OrderGroups(const BackwardGraph& graph, std::vector<Group> groups, GroupOrder order,
                 FusionPlan& plan);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_PLAN_GROUP_ORDER_H_
