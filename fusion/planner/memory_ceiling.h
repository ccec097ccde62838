// Plans whose values never need more than a given number of bytes at once. Three means are tried in
// this order:
//   1. another order of the kernels, which costs no time;
//   2. a price on what kernels store for one another, raised step by step, so that values are
//      recomputed instead of stored;
//   3. splitting kernels at the peak: results that are read much later than they are made get a
//      kernel of their own, which runs later.
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
  std::vector<PairChoice> separated;  // ops that must not share a kernel, because one was split
};

// The plan under a choice.
using PlanUnder = absl::FunctionRef<absl::StatusOr<FusionPlan>(const CeilingChoice&)>;

// The first choice found whose plan obeys the ceiling. `context`: of any plan of this graph. If
// none does, the status says the least that a plan took.
absl::StatusOr<CeilingChoice> FindBelowCeiling(const PlanningContext& context, int64_t max_bytes,
                                               PlanUnder plan);

// Of two such statuses the one that names less memory; the first if one is another error.
absl::Status LessMemory(const absl::Status& a, const absl::Status& b);

// A way to split one kernel at the peak: the ops whose results are read soon, and the ops whose
// results are only kept for later.
struct KernelSplit {
  std::vector<NodeId> first, later;
  int64_t bytes = 0;  // of the results of `later`
};

// The splits at the plan's peak, those that free most bytes first.
std::vector<KernelSplit> SplitsAtPeak(const BackwardGraph& graph, const FusionPlan& plan);

// The decisions that explain the splits, one for each kernel. Equal kernels of other layers are not
// repeated.
std::vector<Decision> ExplainSeparated(const BackwardGraph& graph, const CeilingChoice& choice,
                                       int64_t max_bytes);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_PLANNER_MEMORY_CEILING_H_
