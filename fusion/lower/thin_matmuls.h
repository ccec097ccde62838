// Matmuls of so few rows, columns or terms that they are no work for tensor cores become sums of
// products, which fuse with their neighbours and share launches.
#ifndef RETROGRAD_FUSION_LOWER_THIN_MATMULS_H_
#define RETROGRAD_FUSION_LOWER_THIN_MATMULS_H_

#include "absl/status/statusor.h"
#include "fusion/device/device_spec.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// Each matmul with at most 8 rows, columns or terms: its terms are multiplied and added up in the
// operands' compute dtype where a kernel that does so takes less than the library. Sums are rounded
// once, to the dtype of the matmul's result.
absl::StatusOr<BackwardGraph> ExpandThinMatMuls(const BackwardGraph& graph,
                                                const DeviceSpec& device);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_LOWER_THIN_MATMULS_H_
