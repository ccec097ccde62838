// What a scatter_lines becomes: it stays where its launch costs no more than sorting all of its
// indices does. Else, and where its index depends on constants alone, it is an index_add of all
// lines at once: sums over sorted indices, or views of the source.
#ifndef RETROGRAD_FUSION_LOWER_INDEXED_CHOOSE_SCATTERS_H_
#define RETROGRAD_FUSION_LOWER_INDEXED_CHOOSE_SCATTERS_H_

#include "absl/status/statusor.h"
#include "fusion/device/device_spec.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

struct ScatterOptions {
  const DeviceSpec* device = nullptr;  // prices both; none: every one is an index_add
  bool gathered_sums = true;           // sums at indices that are known gather their terms
};

absl::StatusOr<BackwardGraph> ChooseScatters(const BackwardGraph& graph,
                                             const ScatterOptions& options);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_LOWER_INDEXED_CHOOSE_SCATTERS_H_
