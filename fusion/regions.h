// Where the graph falls apart into parts that are planned on their own.
//
// Matmuls, attention and collectives are barriers. The barrier depth of an op is the largest number
// of barriers on a path to it; ops that no barrier precedes, and casts to a wider type, take the
// smallest depth among their users. Two ops of one depth are never joined by a path across a barrier, so any convex group
// inside a depth is legal. A region is a connected piece of one depth: connected by an edge, or by
// a tensor that both read.
#ifndef RETROGRAD_FUSION_REGIONS_H_
#define RETROGRAD_FUSION_REGIONS_H_

#include <vector>

#include "fusion/consumers.h"
#include "graph/backward_graph.h"

namespace retrograd {

struct Region {
  std::vector<NodeId> ops;  // ascending; ops that a fused kernel computes
};

// Tensors smaller than this (a loss, a norm's weight) connect nothing: reading them twice is free.
inline constexpr int64_t kSharedElements = 1 << 14;

// A region of more ops than this is cut into runs of consecutive ids, so that planning stays linear
// in the size of the graph: nothing in a run depends on a later one.
inline constexpr size_t kMaxRegionOps = 768;

// By node. `taken`: as below.
std::vector<int> BarrierDepths(const BackwardGraph& graph, const Consumers& consumers,
                               const std::vector<bool>& taken);

// `taken` marks ops that already belong to a group (a cast that a matmul absorbs).
std::vector<Region> FindRegions(const BackwardGraph& graph, const Consumers& consumers,
                                const std::vector<bool>& taken);

// Whether a library call runs the op: nothing fuses across it.
bool IsBarrier(const BackwardGraph& graph, NodeId id);

// The stored values that an op reads, looking through views; constants left out. Ascending.
std::vector<ValueId> StoredOperands(const BackwardGraph& graph, NodeId id);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_REGIONS_H_
