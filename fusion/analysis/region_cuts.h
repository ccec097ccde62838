// Cuts a region that is too large to plan at once into runs of consecutive ops.
#ifndef RETROGRAD_FUSION_ANALYSIS_REGION_CUTS_H_
#define RETROGRAD_FUSION_ANALYSIS_REGION_CUTS_H_

#include <vector>

#include "graph/ir/backward_graph.h"

namespace retrograd {

// Runs of at most `most` of the ops (ascending), in order; each but the last has at least half as
// many and ends where the fewest bytes are made or read on one side and read again on the other. In
// a chain of equal layers that is between two of them, so that the runs are equal regions and are
// planned once.
std::vector<std::vector<NodeId>> CutIntoRuns(const BackwardGraph& graph,
                                             const std::vector<NodeId>& ops, size_t most);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_ANALYSIS_REGION_CUTS_H_
