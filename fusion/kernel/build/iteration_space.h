// The iteration space of a kernel, and the mapping of each of its ops into that space.
#ifndef RETROGRAD_FUSION_KERNEL_BUILD_ITERATION_SPACE_H_
#define RETROGRAD_FUSION_KERNEL_BUILD_ITERATION_SPACE_H_

#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "fusion/kernel/build/build.h"

namespace retrograd {

// The mapping of one op: which element of its result it computes at each point of the axes. For a
// reduction also which element of its operand it reads.
struct Walk {
  std::vector<IndexExpr> result;
  std::vector<IndexExpr> operand;  // reductions: coordinates of the element folded in
};

struct IterationSpace {
  std::vector<int64_t> extents;
  absl::flat_hash_map<NodeId, Walk> walks;  // an op without one is evaluated where it is read
  std::optional<BuildRefusal> refusal;      // set if there is no such space
};

// Starts at the op with the most points and follows operands and users through views. Every op that
// is stored or folds axes must get a walk; otherwise there is no space.
IterationSpace FindIterationSpace(const KernelRequest& request);

// Whether two gathers pick the same elements.
bool GatherAlike(const BackwardGraph& graph, NodeId a, NodeId b);

// The mask of axes over which coordinates of a tensor of this shape run through each element
// exactly once; nullopt if they don't.
std::optional<AxisMask> OneToOneAxes(absl::Span<const IndexExpr> coords,
                                     absl::Span<const int64_t> shape,
                                     absl::Span<const int64_t> extents);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_BUILD_ITERATION_SPACE_H_
