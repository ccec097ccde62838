// Values seen through views as strides over what is stored: what a library call can be given
// instead of a copy.
#ifndef RETROGRAD_FUSION_ANALYSIS_STRIDED_VIEW_H_
#define RETROGRAD_FUSION_ANALYSIS_STRIDED_VIEW_H_

#include <optional>
#include <vector>

#include "fusion/kernel/ir/layout.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// Point p of the view is element offset + sum of p[d] * strides[d] of the stored value's memory.
struct StridedView {
  ValueId stored;
  int64_t offset = 0;
  std::vector<int64_t> strides;  // of the view's own dims, none negative; any along an extent of 1
};

// A value through its views; nullopt if no strides say it (a pad, a flip, a reshape across gaps, a
// constant) or it is not stored.
std::optional<StridedView> AsStrided(const BackwardGraph& graph, absl::Span<const Layout> layouts,
                                     ValueId value);

// The strides of a view where it reads what is stored, whatever stands in place of it elsewhere: a
// pad leaves them as they are. nullopt where no strides say it, or nothing is read.
std::optional<std::vector<int64_t>> StridesWithinPads(const BackwardGraph& graph,
                                                      absl::Span<const Layout> layouts,
                                                      ValueId value);

// The dim of a value whose neighbours lie side by side, whatever views do along the others: they
// may pad, repeat or flip them; -1: none does.
int FastestDim(const BackwardGraph& graph, absl::Span<const Layout> layouts, ValueId value);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_ANALYSIS_STRIDED_VIEW_H_
