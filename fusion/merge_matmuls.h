// Matmuls that share an operand become one: fewer, larger matmuls fill the chip and read the shared
// operand once. Two patterns, both from a layer whose input feeds several projections (q, k and v):
//
//   products   a_i · x         ->  slices of  cat(a_i) · x     their weight gradients
//   sums       Σ a_i · b_i     ->  cat(a_i) · cat(b_i)         the gradient of their input
//
// where the a_i are the same in both, they share one cat, which costs nothing if its parts are stored
// side by side (placed_joins.h). Stands behind lowering, because sums must have their order, and
// before layouts, which it decides about. A sum of products that was rounded product by product is
// rounded less often afterwards, never more.
#ifndef RETROGRAD_FUSION_MERGE_MATMULS_H_
#define RETROGRAD_FUSION_MERGE_MATMULS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "fusion/kernel/device_spec.h"
#include "fusion/plan.h"

namespace retrograd {

struct MergedMatMuls {
  BackwardGraph graph;
  // One for each candidate, of ops of `graph`: together, the matmul that they became; apart, the
  // matmuls that they stayed. Costs are of the matmuls and what merging adds around them.
  std::vector<Decision> decisions;
};

struct MergeOptions {
  bool place = true;         // cats may be made by storing their parts side by side
  bool regardless = false;   // merge whatever can be merged, at any price (for tests)
};

// `graph` is lowered, and so is the result.
absl::StatusOr<MergedMatMuls> MergeMatMuls(const BackwardGraph& graph, const DeviceSpec& device,
                                           const MergeOptions& options = {});

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_MERGE_MATMULS_H_
