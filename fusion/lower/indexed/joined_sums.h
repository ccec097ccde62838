// Sums at indices into tables of one shape that are added up, such as the gradients of an embedding
// that a model looks up in several places, become one sum at all of the indices: the table is
// written once, and no other one is written, read and added to it.
#ifndef RETROGRAD_FUSION_LOWER_INDEXED_JOINED_SUMS_H_
#define RETROGRAD_FUSION_LOWER_INDEXED_JOINED_SUMS_H_

#include "absl/status/statusor.h"
#include "fusion/device/device_spec.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// Joins index_adds onto index_adds, and those that are terms of one accumulate, where the device's
// prices say that it pays: one sort of all indices, and copies of indices and sources, against the
// sorts of those that no other sum needs and the tables. Sources at the same index are added first.
// An element's terms are added in the order of the indices'
// first sums. Stands behind CollectAccumulates and
// before OrderAccumulates.
absl::StatusOr<BackwardGraph> JoinIndexedSums(const BackwardGraph& graph, const DeviceSpec& device);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_LOWER_INDEXED_JOINED_SUMS_H_
