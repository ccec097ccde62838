// Why two ops share a kernel or don't: the best plan of their region with them together and the
// best with them apart, by the very search that plans, and what tips the balance.
//
// Both costs are what planning under the PairChoice gives the region. The search counts a launch
// for every kernel; kernels that do not depend on each other share launches afterwards, which may
// change the sum, and so what sharing wins is told beside the costs. Where the plan had contracted
// the two into one atom, that contraction is undone for the comparison, and neither is recomputed.
#ifndef RETROGRAD_FUSION_WHATIF_WHY_H_
#define RETROGRAD_FUSION_WHATIF_WHY_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "fusion/planner/planner.h"

namespace retrograd {

// A kernel of one side that the other side's plan does not have.
struct WhyKernel {
  Group group;
  int64_t cost_ps = 0;    // price with margin and the price of memory
  int64_t margin_ps = 0;  // of it; 0 for a kernel of one atom
};

// The region under one choice.
struct WhySide {
  bool feasible = false;
  int64_t cost_ps = 0;        // of the whole region: what the search minimises
  std::string limit, reason;  // if there is no plan: which limit, and a sentence
  std::vector<WhyKernel> kernels;
  // What shared launches win in the plan of the whole graph under this choice. 0 where no kernels
  // share launches, and under a memory ceiling.
  int64_t shared_launch_ps = 0;
};

// A term of the price, summed over the kernels that differ.
struct WhyTerm {
  std::string name;
  int64_t together_ps = 0, apart_ps = 0;
};

struct Why {
  NodeId a{}, b{};        // a < b
  std::string never;      // why no plan has them together; what follows is empty then
  bool together = false;  // what the plan does
  int64_t region = -1;    // its number, its ops and atoms
  int64_t region_ops = 0, region_atoms = 0;
  int64_t planned_ps = 0;      // cost of the region as planned, with contraction and recomputation
  bool one_atom = false;       // contracted into one before the search
  bool recomputed = false;     // one of them is computed by several kernels of the plan
  WhySide share, part;         // together, apart
  std::vector<WhyTerm> terms;  // those that contribute, and margins, memory; if both are feasible
  std::string decides;         // one sentence: the limit, margin or term
};

// `lowered` is a lowered graph, as in Planned. Options as for planning; their pairs are ignored.
// `memory_ps_per_mib` is the price of memory under which the plan was made.
absl::StatusOr<Why> ExplainWhy(const BackwardGraph& lowered, const DeviceSpec& device,
                               const PlanOptions& options, NodeId a, NodeId b,
                               int64_t memory_ps_per_mib = 0);

// Whether a kernel of the region's plan computes both, as its own or again.
bool ShareAKernel(const RegionPlan& plan, NodeId a, NodeId b);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_WHATIF_WHY_H_
