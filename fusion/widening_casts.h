// Casts to a wider type (a mask to fp32, bf16 to fp32) are made wherever their result is read: kernels on
// both sides of a matmul read the narrow value, and the wide one is never stored.
#ifndef RETROGRAD_FUSION_WIDENING_CASTS_H_
#define RETROGRAD_FUSION_WIDENING_CASTS_H_

#include "absl/status/statusor.h"
#include "graph/backward_graph.h"

namespace retrograd {

// Whether the node casts a large value to a type of more bytes.
bool IsWideningCast(const BackwardGraph& graph, NodeId id);

// The graph in which each widening cast is read at one barrier depth (fusion/regions.h) alone: readers
// at each further depth have a cast of their own. What the host receives stays one value.
absl::StatusOr<BackwardGraph> PartWideningCasts(const BackwardGraph& graph);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_WIDENING_CASTS_H_
