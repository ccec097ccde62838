// The graph-to-graph steps before the search, in order, each with why it stands there.
#include "fusion/legalize.h"
#include "fusion/padded_rows.h"
#include "fusion/planner.h"
#include "fusion/rematerialize.h"
#include "fusion/shared_pads.h"
#include "graph/accumulate.h"
#include "graph/expand.h"
#include "graph/simplify.h"
#include "graph/status.h"

namespace retrograd {

absl::StatusOr<BackwardGraph> Lower(const BackwardGraph& graph, const PlanOptions& options) {
  // Composites first: their pieces fuse one by one with what surrounds them.
  RG_ASSIGN_OR_RETURN(BackwardGraph g, ExpandComposites(graph));
  // Then the algebra, so that equal pieces of different composites are one.
  const SimplifyOptions simplify{.cast_pairs = !options.disable.contains("cast_pairs")};
  RG_ASSIGN_OR_RETURN(g, Simplify(g, simplify));
  RG_ASSIGN_OR_RETURN(g, SharePads(g));
  RG_ASSIGN_OR_RETURN(g, PadRows(g));
  // Sums of gradient contributions are seen whole before an order is fixed: each contribution is
  // added where it is made.
  RG_ASSIGN_OR_RETURN(g, CollectAccumulates(g));
  RG_ASSIGN_OR_RETURN(g, OrderAccumulates(g, !options.disable.contains("first_writer")));
  RG_ASSIGN_OR_RETURN(g, Simplify(g, simplify));
  // After equal ops were merged: each part of the graph between barriers has its own again of those
  // that cost nothing.
  if (!options.disable.contains("recompute")) {
    RG_ASSIGN_OR_RETURN(g, RematerializeAtBarriers(g));
  }
  // Last, because every step before may move what lies in memory.
  return Legalize(g);
}

}  // namespace retrograd
