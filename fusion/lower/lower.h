// The graph-to-graph steps before the search: composites expanded, simplified, sums collected and
// ordered, everything that must lie in memory made storable. lower.cc lists them in order, each
// with why it stands there.
#ifndef RETROGRAD_FUSION_LOWER_LOWER_H_
#define RETROGRAD_FUSION_LOWER_LOWER_H_

#include "absl/status/statusor.h"
#include "fusion/analysis/barrier_depths.h"
#include "fusion/lower/layouts/layouts.h"
#include "fusion/lower/legalize.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// Each can be switched off by its name in kFeatures (fusion/planner/planner.h).
struct LowerOptions {
  bool gathered_sums = true;     // sums at indices that are known gather their terms
  bool cast_pairs = true;        // a narrowing that is widened back is dropped
  bool first_writer = true;      // the first contribution to a sum stores
  bool scatter_lines = true;     // sums at indices of each line without a sort
  bool position_order = true;    // what sums share of positions is put in order once
  bool based_sums = true;        // sums at indices begin with what they are added to
  bool joined_sums = true;       // sums at indices that are added up are one at all of them
  bool sums_of_slices = true;    // sums of neighbouring slices are made at once
  bool thin_matmuls = true;      // matmuls of few rows, columns or terms are sums of products
  bool image_order = true;       // images of convolutions are copied into the order that pays
  bool taps_as_channels = true;  // images of few channels get more where that pays
  bool depthwise_taps = true;    // depthwise gradients of few taps are sums where that pays
  bool split_scans = true;       // scans of few long rows go piece by piece where that pays
  bool pad_operands = true;      // matmuls read operands padded where their prices say so
  bool padded_rows = true;       // rows are computed at the aligned length that a matmul reads
  bool accumulate_order = true;  // each contribution is added where it is made
  bool rematerialize = true;     // what costs no more to make than to read is made at each depth
  bool place_concats = true;     // parts of a join may be stored side by side as they are made
  SinkOptions sinking;
  LayoutOptions layouts;
  // Prices scatters, pads, images, joins and thin matmuls; none: none of them.
  const DeviceSpec* device = nullptr;
};

// The lowered graph, and how its values lie under options.layouts. An error where a step cannot
// build its graph, or where what must lie in memory cannot.
absl::StatusOr<LegalGraph> LowerAndLayOut(const BackwardGraph& graph,
                                          const LowerOptions& options = {});
// The graph alone.
absl::StatusOr<BackwardGraph> Lower(const BackwardGraph& graph, const LowerOptions& options = {});

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_LOWER_LOWER_H_
