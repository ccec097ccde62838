// What the plan of one size decides for other sizes of the same graph: which matmuls become one,
// and which ops of each region share a kernel, are stored or are computed again. A plan after a
// pattern prices these kernels at its own size and gives them the best schedules there. Regions for
// which the pattern says nothing, or costs too much, are searched. Without decisions such a plan
// does not tell what its ops would take apart: PlanSummary::unfused_ps and unfused_bytes are 0.
#ifndef RETROGRAD_FUSION_PLANNER_PLAN_PATTERN_H_
#define RETROGRAD_FUSION_PLANNER_PLAN_PATTERN_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "fusion/planner/plan_graph.h"

namespace retrograd {

struct PlanPattern {
  struct Region {
    std::shared_ptr<const RegionResult> solved;
    int64_t least_ps = 0;  // that kernels take which move what the region has to, at full bandwidth
  };
  std::vector<bool> merges;          // by candidate (merge_matmuls.h): whether it is merged
  std::vector<std::string> without;  // names of kFeatures without which the plan took less
  // By RegionStructure; several where regions of one structure are planned otherwise.
  absl::flat_hash_map<std::string, std::vector<Region>> regions;
};

// Search bound. A region is searched where its kernels would take this many times as long, beside
// the least that its bytes take, as at the size of the pattern.
inline constexpr double kMostOverPattern = 1.1;

// Adds the regions of a lowered graph that were solved, by plans under the same options.
absl::Status AddRegions(const LegalGraph& legal, const DeviceSpec& device,
                        const PlanOptions& options, RegionResults& solved, PlanPattern& pattern);

// Plans the graph and tells what its plan decides. `options`: without a pattern.
absl::StatusOr<std::shared_ptr<const PlanPattern>> PatternOf(const BackwardGraph& graph,
                                                             const DeviceSpec& device,
                                                             const PlanOptions& options);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_PLANNER_PLAN_PATTERN_H_
