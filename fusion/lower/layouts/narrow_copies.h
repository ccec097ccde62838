// Copies of narrow tensors for casts that widen them and lie in another order.
#ifndef RETROGRAD_FUSION_LOWER_LAYOUTS_NARROW_COPIES_H_
#define RETROGRAD_FUSION_LOWER_LAYOUTS_NARROW_COPIES_H_

#include "absl/status/statusor.h"
#include "fusion/lower/layouts/layouts.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// Where a cast widens a tensor that lies along another dim than the cast does, what is stored in
// the cast's order is twice as wide as what is read. Such casts read a copy, one for all casts of
// the tensor that lie along one dim: it fuses as any op does, and stored, it moves narrow elements.
// Elementwise values need none, which lie as their casts do. The graph itself, if it has no such
// cast. layouts: of the graph.
absl::StatusOr<BackwardGraph> CopyForWideningCasts(const BackwardGraph& graph,
                                                   absl::Span<const Layout> layouts);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_LOWER_LAYOUTS_NARROW_COPIES_H_
