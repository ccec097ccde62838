// The most memory that a plan's values take at once when its groups run one after the other.
#ifndef RETROGRAD_FUSION_PLAN_PEAK_MEMORY_H_
#define RETROGRAD_FUSION_PLAN_PEAK_MEMORY_H_

#include <cstdint>
#include <vector>

#include "fusion/plan/plan.h"

namespace retrograd {

// Bytes of the graph's inputs (donated ones until their last use), of outputs once written, of what
// groups store for one another from its writer to its last reader, and of the workspace of the
// group that runs; a permitted takeover of bytes counts once. What alignment and fragmentation add
// is the runtime's.
std::vector<int64_t> LiveBytes(const BackwardGraph& graph, const FusionPlan& plan);  // by group

int64_t PeakBytes(const BackwardGraph& graph, const FusionPlan& plan);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_PLAN_PEAK_MEMORY_H_
