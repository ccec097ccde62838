// Values that cost no more to make again than to read are made wherever they are read: kernels on
// both sides of a matmul read what a value is made of (a mask under its cast to fp32, a saved
// tensor under a division by a constant), and the value itself is never stored.
#ifndef RETROGRAD_FUSION_LOWER_REMATERIALIZE_H_
#define RETROGRAD_FUSION_LOWER_REMATERIALIZE_H_

#include "absl/status/statusor.h"
#include "fusion/analysis/free_reads.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// The graph in which each value with a source (fusion/analysis/cheap_sources.h) is read at one
// barrier depth (fusion/analysis/barrier_depths.h) alone: readers at each further depth make their
// own. What the host or a library call reads stays one value, and is made again only from what is
// narrower.
absl::StatusOr<BackwardGraph> RematerializeAtBarriers(const BackwardGraph& graph,
                                                      const FreeReads& free = {});

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_LOWER_REMATERIALIZE_H_
