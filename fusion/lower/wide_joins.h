// Joins of hundreds of parts, which no kernel makes at the speed of memory: as joins of joins.
#ifndef RETROGRAD_FUSION_LOWER_WIDE_JOINS_H_
#define RETROGRAD_FUSION_LOWER_WIDE_JOINS_H_

#include "absl/status/statusor.h"
#include "fusion/device/device_spec.h"
#include "fusion/lower/layouts/layouts.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// A kernel that joins parts looks at all of them for each element. Beyond some dozens that takes
// longer than to move the elements twice and to launch more kernels: joins of neighbouring parts
// are then joined, as many by a kernel as take least by the device's instructions, bandwidth and
// launches. An accumulate of parts that lie side by side along one axis and fill it, as the
// gradient of `x[:, t]` of a loop over t, is such a join; it stays a sum where it is no wide one.
// With `place`, a join whose parts are stored side by side as they are made
// (fusion/lower/concat_in_place.h) is not cut. No element has more than one contribution: the
// results are the same, but for the sign of a zero.
absl::StatusOr<BackwardGraph> CutWideJoins(const BackwardGraph& graph, const LayoutOptions& layouts,
                                           bool place, const DeviceSpec& device);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_LOWER_WIDE_JOINS_H_
