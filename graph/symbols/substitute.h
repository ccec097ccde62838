// Numbers of a graph, replaced by those of its sizes.
#ifndef RETROGRAD_GRAPH_SYMBOLS_SUBSTITUTE_H_
#define RETROGRAD_GRAPH_SYMBOLS_SUBSTITUTE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "graph/ir/backward_graph.h"
#include "graph/symbols/size_table.h"

namespace retrograd {

// Malformed (kSizePlace, kSizeHint) unless the table's places are numbers of the graph, and its
// numbers there are those of the values. values: as EvaluateSizes gives them at the hints.
absl::Status CheckPlaces(const BackwardGraph& graph, const SizeTable& table,
                         absl::Span<const int64_t> values);

// The graph with the numbers that follow from the values at the table's places, which CheckPlaces
// has found there. It has no unknown fields. Nodes that no size changes are shared. A refusal names
// the node: an extent may be negative, or a reshape may not keep the element count.
absl::StatusOr<BackwardGraph> Substitute(const BackwardGraph& graph, const SizeTable& table,
                                         absl::Span<const int64_t> values);

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_SYMBOLS_SUBSTITUTE_H_
