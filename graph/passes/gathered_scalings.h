// Rows that are scaled before they are gathered.
#ifndef RETROGRAD_GRAPH_PASSES_GATHERED_SCALINGS_H_
#define RETROGRAD_GRAPH_PASSES_GATHERED_SCALINGS_H_

#include "absl/status/statusor.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// index_select(x times a number) becomes index_select(x) times the number, where nothing else reads
// the scaled x: a kernel cannot gather rows that it makes itself, so x would be stored once more
// for next to nothing. The same for divisions by a constant but zero, for neg and for casts; but
// not where the gather would read more, by casts that narrow what a kernel makes, or rows that are
// gathered more than once. All of them give zero of zero, which is what indices outside of x read;
// a factor that is not finite gives NaN there instead.
absl::StatusOr<BackwardGraph> ScaleBehindGathers(const BackwardGraph& graph);

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_PASSES_GATHERED_SCALINGS_H_
