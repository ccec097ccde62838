// Values that cost no more to make again than to read are made wherever they are read: kernels on
// both sides of a matmul read what a value is made of (a mask under its cast to fp32, a saved
// tensor under a division by a constant), and the value itself is never stored.
#ifndef RETROGRAD_FUSION_REMATERIALIZE_H_
#define RETROGRAD_FUSION_REMATERIALIZE_H_

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/backward_graph.h"

namespace retrograd {

// Whether the node casts a large value to a type of more bytes.
bool IsWideningCast(const BackwardGraph& graph, NodeId id);

// By node: the one large value that a large pointwise op is made of, by itself or through others
// such that are made of it, if reading it moves no more bytes than reading the result. It lies in
// memory anyway (an input, what a library call made), or is narrower than the result. At most
// kMostRematerialized ops lead from it to the result, casts not counted.
inline constexpr int kMostRematerialized = 4;
std::vector<std::optional<ValueId>> Sources(const BackwardGraph& graph);

// The graph in which each value with a source is read at one barrier depth
// (fusion/barrier_depths.h) alone: readers at each further depth make their own. What the host or a
// library call reads stays one value, and is made again only from what is narrower.
absl::StatusOr<BackwardGraph> RematerializeAtBarriers(const BackwardGraph& graph);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_REMATERIALIZE_H_
