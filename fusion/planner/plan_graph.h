// One graph planned once, as it is: its regions solved, equal ones once, their kernels made and put
// in order. What one version of a graph has found out serves the next.
#ifndef RETROGRAD_FUSION_PLANNER_PLAN_GRAPH_H_
#define RETROGRAD_FUSION_PLANNER_PLAN_GRAPH_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "fusion/gemm_merge/merge_trials.h"
#include "fusion/plan/group_order.h"
#include "fusion/planner/planning_context.h"

namespace retrograd {

// A region solved once: parts as positions of the region's ops, valid for every equal region.
struct RegionResult {
  struct Part {
    std::vector<size_t> positions;
    std::vector<size_t> unstored;    // those computed again by whoever reads them
    std::vector<size_t> kept;        // those stored for what others compute again
    std::vector<size_t> recomputed;  // those of them that an earlier part owns
    bool joins = false;              // atoms: a fusion that had to win by a margin
    Schedule schedule;
  };
  std::vector<Part> parts;
  int64_t price_ps = 0;  // of the parts
  int64_t cost_ps = 0, bound_ps = 0, unfused_ps = 0, unfused_bytes = 0;
  bool exact = false;
  int64_t atoms = 0;
};

// Regions solved so far, by their signatures: plans of several versions of a graph on one device,
// under equal options, share them.
struct RegionResults {
  absl::flat_hash_map<std::string, std::shared_ptr<const RegionResult>> by_signature;
  absl::flat_hash_map<std::string, int64_t> alone_ps;  // T of a single op, by its signature
  KernelPrices kernels;
  absl::flat_hash_set<std::string> kept;  // signatures of those that have a pattern's partition
};

// `layouts`: as for PlanningContext::Make.
absl::StatusOr<FusionPlan> PlanGraph(const BackwardGraph& lowered, const DeviceSpec& device,
                                     const PlanOptions& options, int64_t memory_ps_per_mib,
                                     GroupOrder order, RegionResults& solved,
                                     const std::vector<Layout>* layouts = nullptr);

// The price of the plan; of one in which kernels share no launches without `shared_ps`. A plan that
// would take more than enough_ps even if sharing launches won it shared_ps has a lower bound that
// says so.
absl::StatusOr<PlanPrice> PriceGraph(const LegalGraph& legal, const DeviceSpec& device,
                                     const PlanOptions& options, int64_t enough_ps,
                                     std::optional<int64_t> shared_ps, RegionResults& solved);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_PLANNER_PLAN_GRAPH_H_
