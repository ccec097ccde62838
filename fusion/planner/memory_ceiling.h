// Plans under a ceiling of the bytes that are alive at once. Three means, each tried before the
// next: another order of the kernels, which costs no time; a price on what kernels store for one
// another, raised step by step, so that values are computed again instead of kept; and parting, at
// the peak, kernels of which some results are made long before anyone reads them, so that those are
// made later.
#ifndef RETROGRAD_FUSION_PLANNER_MEMORY_CEILING_H_
#define RETROGRAD_FUSION_PLANNER_MEMORY_CEILING_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "fusion/plan/group_order.h"
#include "fusion/planner/planning_context.h"

namespace retrograd {

// How a plan is to be made.
struct CeilingChoice {
  int64_t memory_ps_per_mib = 0;  // price of what kernels store for one another
  GroupOrder order = GroupOrder::kProgram;
  std::vector<PairChoice> parted;  // ops that must not share a kernel
};

// The plan under a choice.
using PlanUnder = absl::FunctionRef<absl::StatusOr<FusionPlan>(const CeilingChoice&)>;

// The first choice found whose plan obeys the ceiling. `ground` is that of any of the plans.
absl::StatusOr<CeilingChoice> FindBelowCeiling(const Groundwork& ground, int64_t max_bytes,
                                               PlanUnder plan);

// A kernel, some of whose results wait while the most is alive: those that are read first, and
// those that only wait.
struct Parting {
  std::vector<NodeId> first, later;
  int64_t bytes = 0;  // of those that wait
};

// At the plan's peak, those that keep most bytes waiting first.
std::vector<Parting> PartingsAtPeak(const BackwardGraph& graph, const FusionPlan& plan);

// What a plan says about the ops that the ceiling has parted, once for each kernel and not for its
// equals.
std::vector<Decision> ExplainParted(const BackwardGraph& graph, const CeilingChoice& choice,
                                    int64_t max_bytes);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_PLANNER_MEMORY_CEILING_H_
