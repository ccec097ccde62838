// Where the graph falls apart into parts that are planned on their own.
//
// A region is a connected piece of one barrier depth (fusion/analysis/barrier_depths.h): connected
// by an edge, or by a tensor that both read.
#ifndef RETROGRAD_FUSION_ANALYSIS_REGIONS_H_
#define RETROGRAD_FUSION_ANALYSIS_REGIONS_H_

#include <vector>

#include "fusion/analysis/barrier_depths.h"
#include "fusion/analysis/consumers.h"
#include "fusion/analysis/free_reads.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

struct Region {
  std::vector<NodeId> ops;  // ascending; ops that a fused kernel computes
  // Where runs begin that are searched one by one before their kernels are joined; empty: all of it
  // is searched at once. Ascending, without the first run's.
  std::vector<NodeId> later_runs;
};

// What has more ops than this is cut into runs of consecutive ids, so that planning stays linear in
// the size of the graph: nothing in a run depends on a later one. Runs of up to kMaxJoinedOps
// together, as many as a kernel may have, are one region; else each is.
inline constexpr size_t kMaxRegionOps = 768, kMaxJoinedOps = 4096;

// `taken` marks ops that already belong to a group (a cast that a matmul absorbs).
std::vector<Region> FindRegions(const BackwardGraph& graph, const Consumers& consumers,
                                const std::vector<bool>& taken, const SinkOptions& sinking = {});

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_ANALYSIS_REGIONS_H_
