#include "fusion/lower/lower.h"

#include "fusion/lower/depthwise_taps.h"
#include "fusion/lower/image_order.h"
#include "fusion/lower/indexed/based_sums.h"
#include "fusion/lower/indexed/choose_scatters.h"
#include "fusion/lower/indexed/gather_sums.h"
#include "fusion/lower/indexed/joined_sums.h"
#include "fusion/lower/indexed/order_positions.h"
#include "fusion/lower/indexed/slice_gathers.h"
#include "fusion/lower/indexed/sort_indices.h"
#include "fusion/lower/layouts/narrow_copies.h"
#include "fusion/lower/legalize.h"
#include "fusion/lower/pad_operands.h"
#include "fusion/lower/padded_rows.h"
#include "fusion/lower/private/private_gathers.h"
#include "fusion/lower/private/private_slices.h"
#include "fusion/lower/rematerialize.h"
#include "fusion/lower/split_scans.h"
#include "fusion/lower/taps_as_channels.h"
#include "fusion/lower/thin_matmuls.h"
#include "fusion/lower/wide_joins.h"
#include "graph/base/status.h"
#include "graph/passes/accumulate.h"
#include "graph/passes/expand.h"
#include "graph/passes/gathered_scalings.h"
#include "graph/passes/short_scans.h"
#include "graph/passes/simplify.h"
#include "graph/passes/sums/one_hot_sums.h"
#include "graph/passes/sums/sums_of_slices.h"
#include "graph/passes/sums/sums_of_turns.h"

namespace retrograd {

absl::StatusOr<LegalGraph> LowerAndLayOut(const BackwardGraph& graph, const LowerOptions& options) {
  // Composites first: their pieces fuse one by one with what surrounds them.
  RG_ASSIGN_OR_RETURN(BackwardGraph g, ExpandComposites(graph));
  RG_ASSIGN_OR_RETURN(g, ExpandShortScans(g));
  RG_ASSIGN_OR_RETURN(g, TakeOneHotSums(g));
  RG_ASSIGN_OR_RETURN(g, SliceKnownGathers(g));
  const DeviceSpec* const scatters = options.scatter_lines ? options.device : nullptr;
  RG_ASSIGN_OR_RETURN(g, ChooseScatters(g, {scatters, options.gathered_sums}));
  if (options.gathered_sums) {
    RG_ASSIGN_OR_RETURN(g, GatherKnownSums(g));
  }
  // Then the algebra, so that equal pieces of different composites are one.
  const SimplifyOptions simplify{.cast_pairs = options.cast_pairs};
  RG_ASSIGN_OR_RETURN(g, Simplify(g, simplify));
  // Before pads: what is no matmul reads its operands as they are.
  if (options.thin_matmuls && options.device != nullptr) {
    RG_ASSIGN_OR_RETURN(g, ExpandThinMatMuls(g, *options.device));
  }
  if (options.split_scans && options.device != nullptr) {
    RG_ASSIGN_OR_RETURN(g, SplitScans(g, *options.device));
  }
  // Pads before what makes their operands: rows that are padded are then computed so.
  if (options.pad_operands && options.device != nullptr) {
    RG_ASSIGN_OR_RETURN(g, PadOperands(g, *options.device));
  }
  if (options.padded_rows && options.device != nullptr) {
    RG_ASSIGN_OR_RETURN(g, PadRows(g, options.device->matmul_alignment_bytes));
  }
  if (options.sums_of_slices) {
    RG_ASSIGN_OR_RETURN(g, SumSlicesAtOnce(g));
  }
  // Sums of gradient contributions are seen whole before an order is fixed: each contribution is
  // added where it is made.
  RG_ASSIGN_OR_RETURN(g, CollectAccumulates(g));
  RG_ASSIGN_OR_RETURN(g, StackTurns(g));
  if (options.joined_sums && options.device != nullptr) {
    RG_ASSIGN_OR_RETURN(g, JoinIndexedSums(g, *options.device));
  }
  if (options.accumulate_order) {
    RG_ASSIGN_OR_RETURN(g, OrderAccumulates(g, options.first_writer));
  }
  // After equal ops were merged, so that a value that one op alone reads is seen as such.
  RG_ASSIGN_OR_RETURN(g, ScaleBehindGathers(g));
  RG_ASSIGN_OR_RETURN(g, Simplify(g, simplify));
  // After sums have their order: what is left of a sum of parts alone is one op.
  if (options.device != nullptr) {
    RG_ASSIGN_OR_RETURN(g,
                        CutWideJoins(g, options.layouts, options.place_concats, *options.device));
  }
  // After equal indices were merged, so that they are sorted once; before the parts between
  // barriers are cut, since a sort is one.
  RG_ASSIGN_OR_RETURN(g, SortIndices(g));
  if (options.based_sums) {
    RG_ASSIGN_OR_RETURN(g, SumOntoBases(g));
  }
  if (options.position_order) {
    RG_ASSIGN_OR_RETURN(g, OrderPositions(g));
  }
  RG_ASSIGN_OR_RETURN(g, PrivateGathers(g));
  // After equal ops were merged: each part of the graph between barriers has its own again of those
  // that cost nothing.
  if (options.rematerialize) {
    RG_ASSIGN_OR_RETURN(g, PrivateSlices(g, options.sinking.free));
    RG_ASSIGN_OR_RETURN(g, RematerializeAtBarriers(g, options.sinking));
  }
  // After values were made again at each depth: a copy is made once.
  if (options.image_order && options.layouts.follow && options.device != nullptr) {
    RG_ASSIGN_OR_RETURN(g, OrderImages(g, *options.device));
  }
  // After chains were looked at, in which a first layer's image is one as it is given.
  if (options.taps_as_channels && options.device != nullptr) {
    RG_ASSIGN_OR_RETURN(g, TakeTapsAsChannels(g, *options.device));
  }
  // After images were put in order: their gradients are priced as they lie.
  if (options.depthwise_taps && options.device != nullptr) {
    RG_ASSIGN_OR_RETURN(g, ExpandDepthwiseTaps(g, options.layouts, *options.device));
  }
  // Last, because every step before may move what lies in memory.
  RG_ASSIGN_OR_RETURN(LegalGraph legal, Legalize(g, options.layouts));
  if (!legal.layouts.walks_decide) return legal;
  // What is narrow is copied where its casts lie otherwise. Both are tried together: without the
  // order of walks there are no copies.
  RG_ASSIGN_OR_RETURN(g, CopyForWideningCasts(legal.graph, legal.layouts.of));
  if (g.num_nodes() == legal.graph.num_nodes()) return legal;
  RG_ASSIGN_OR_RETURN(LegalGraph copied, Legalize(g, options.layouts));
  copied.layouts.walks_decide = true;
  return copied;
}

absl::StatusOr<BackwardGraph> Lower(const BackwardGraph& graph, const LowerOptions& options) {
  RG_ASSIGN_OR_RETURN(LegalGraph legal, LowerAndLayOut(graph, options));
  return std::move(legal.graph);
}

}  // namespace retrograd
