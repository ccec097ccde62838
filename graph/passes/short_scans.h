// Scans along axes of few places as ops of single elements.
//
// The product over a box's two sides, or over the three coordinates of a point, has a gradient of
// cumulative products along that axis. A scan is a kernel of its own; what each place is made of
// fuses with what stands around. It comes before long scans are cut into pieces, of which a row may
// have few: these stay scans.
#ifndef RETROGRAD_GRAPH_PASSES_SHORT_SCANS_H_
#define RETROGRAD_GRAPH_PASSES_SHORT_SCANS_H_

#include "absl/status/statusor.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// Each scan along an axis of at most 4 places becomes a cat of its places, each folded from the
// place before it in the compute dtype and rounded once.
absl::StatusOr<BackwardGraph> ExpandShortScans(const BackwardGraph& graph);

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_PASSES_SHORT_SCANS_H_
