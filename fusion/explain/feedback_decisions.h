// What a compiler report changed in a region: the kernels that would have been chosen without it,
// but spill.
#ifndef RETROGRAD_FUSION_EXPLAIN_FEEDBACK_DECISIONS_H_
#define RETROGRAD_FUSION_EXPLAIN_FEEDBACK_DECISIONS_H_

#include <vector>

#include "fusion/plan/plan.h"
#include "fusion/search/region_plan.h"

namespace retrograd {

// Solves the region as if nothing had been compiled before, and says for each kernel of that plan
// that spills how the chosen plan differs. Empty without feedback.
std::vector<Decision> ExplainFeedback(const Region& region, const RegionPlan& chosen,
                                      const GroupPricer& pricer, const RegionOptions& options,
                                      absl::Span<const PairChoice> pairs);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_EXPLAIN_FEEDBACK_DECISIONS_H_
