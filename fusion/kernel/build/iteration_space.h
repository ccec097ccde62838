// Where each op of a kernel stands in the kernel's iteration space.
#ifndef RETROGRAD_FUSION_KERNEL_BUILD_ITERATION_SPACE_H_
#define RETROGRAD_FUSION_KERNEL_BUILD_ITERATION_SPACE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "fusion/kernel/build/build.h"

namespace retrograd {

// The walk of one op: the coordinates of its result (for a reduction also of its operand) at each
// point of the axes.
struct Walk {
  std::vector<IndexExpr> result;
  std::vector<IndexExpr> operand;  // reductions: coordinates of the element folded in
};

struct IterationSpace {
  std::vector<int64_t> extents;
  absl::flat_hash_map<NodeId, Walk> walks;  // ops without one are only ever evaluated in place
  std::string limit, reason;                // set if there is no such space
  bool ok() const { return limit.empty(); }
};

// Starts at the op with the most points and spreads along operands and users. Every op that is
// stored or folds axes gets a walk, or the space is refused.
IterationSpace FindIterationSpace(const KernelRequest& request);

// The mask of axes over which coordinates of a tensor of this shape run through each element
// exactly once; nullopt if they don't.
std::optional<AxisMask> OneToOneAxes(absl::Span<const IndexExpr> coords,
                                     absl::Span<const int64_t> shape,
                                     absl::Span<const int64_t> extents);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_BUILD_ITERATION_SPACE_H_
