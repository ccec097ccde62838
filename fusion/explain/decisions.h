// Why the groups of a region are as they are: for pairs of ops at the borders of groups, the best
// plan with them together against the best with them apart, both from the same search; and the
// schedules that a limit refused.
#ifndef RETROGRAD_FUSION_EXPLAIN_DECISIONS_H_
#define RETROGRAD_FUSION_EXPLAIN_DECISIONS_H_

#include <vector>

#include "fusion/plan/plan.h"
#include "fusion/search/region_plan.h"

namespace retrograd {

struct DecisionOptions {
  int max_borders = 8;       // pairs of a group that are re-solved
  int max_exact_atoms = 24;  // of a region whose borders are
};

// About a region and the plan that was chosen for it.
std::vector<Decision> ExplainRegion(RegionPlanner& planner, const RegionPlan& chosen,
                                    const GroupPricer& pricer, const DecisionOptions& options = {});

// About two ops of the region, which must have been among the planner's pairs.
Decision ExplainPair(RegionPlanner& planner, const RegionPlan& chosen, const GroupPricer& pricer,
                     NodeId a, NodeId b);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_EXPLAIN_DECISIONS_H_
