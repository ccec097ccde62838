// The graph-to-graph steps before the search: composites expanded, simplified, sums collected and
// ordered, everything that must lie in memory made storable. lower.cc lists them in order, each
// with why it stands there.
#ifndef RETROGRAD_FUSION_LOWER_LOWER_H_
#define RETROGRAD_FUSION_LOWER_LOWER_H_

#include "absl/status/statusor.h"
#include "fusion/analysis/free_reads.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// Each can be switched off by its name in kFeatures (fusion/planner/planner.h).
struct LowerOptions {
  bool cast_pairs = true;    // a narrowing that is widened back is dropped
  bool first_writer = true;  // the first contribution to a sum stores
  bool recompute = true;     // what costs no more to make than to read is made where it is read
  FreeReads free_reads;      // what that is
  const DeviceSpec* device = nullptr;  // prices padded operands; none: nothing is padded
};

absl::StatusOr<BackwardGraph> Lower(const BackwardGraph& graph, const LowerOptions& options = {});

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_LOWER_LOWER_H_
