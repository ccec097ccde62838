// Barrier depths: how far down the graph each op is computed, counted in barriers (matmuls,
// attention, collectives) that lie before it. Two ops of one depth are never joined by a path
// across a barrier, so any convex group inside a depth is legal.
//
// An op's results fix only a range of depths: from the most barriers on a path to it down to the
// least depth of what reads it. The choice, in this order:
//   1. what no barrier precedes, and what can be made from what lies in memory anyway
//      (fusion/analysis/cheap_sources.h), stands beside its first reader; but a sum stays beside
//      what it reads, if more bytes that kernels there leave are not read again than storing and
//      reading its result takes;
//   2. a whole component (below) stands beside the first reader of its results if that saves more
//      traffic than it keeps memory alive in between: a norm's gradient that only the next norm's
//      gradient is added to need not be stored;
//   3. the rest stands as early as it can; so does a given tensor that is copied into another
//   order.
#ifndef RETROGRAD_FUSION_ANALYSIS_BARRIER_DEPTHS_H_
#define RETROGRAD_FUSION_ANALYSIS_BARRIER_DEPTHS_H_

#include <vector>

#include "absl/container/inlined_vector.h"
#include "fusion/analysis/consumers.h"
#include "fusion/analysis/free_reads.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// Whether a library call runs the op: nothing fuses across it.
bool IsBarrier(const BackwardGraph& graph, NodeId id);

// Whether the op copies a given tensor into another order (fusion/lower/image_order.h). It is
// stored as it is: beside its readers it would be made into what they make of it, of more bytes
// than it has, or again by each.
bool ReordersGiven(const BackwardGraph& graph, NodeId id);

// The stored values that an op reads, looking through views; constants left out. Ascending.
absl::InlinedVector<ValueId, 8> StoredOperands(const BackwardGraph& graph, NodeId id);

// Each can be switched off by its name in kFeatures (fusion/planner/planner.h).
struct SinkOptions {
  bool sources = true;     // choice 1
  bool components = true;  // choice 2
  FreeReads free;          // what connects nothing and is made again for nothing
};

// By node. `taken` marks ops that already belong to a group (a cast that a matmul absorbs); they
// count as barriers of their own.
std::vector<int> BarrierDepths(const BackwardGraph& graph, const Consumers& consumers,
                               const std::vector<bool>& taken, const SinkOptions& options = {});

// By node, the first op of its component: of the ops at one depth that are connected by an edge or
// by a large tensor that both read. Ops that are no part of a kernel are alone.
std::vector<uint32_t> ComponentsAtDepths(const BackwardGraph& graph, const std::vector<int>& depths,
                                         const std::vector<bool>& taken, const FreeReads& free);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_ANALYSIS_BARRIER_DEPTHS_H_
