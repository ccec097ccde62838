// Where each stored value lies, decided before the search: the host's strides for inputs and
// outputs, an order that library calls can read for what feeds them, that of what is read beside
// them for what calls make and no call reads, the order of the operand for the rest, or that of
// most of what is walked with it. So that transposes become strides and not kernels.
#ifndef RETROGRAD_FUSION_LOWER_LAYOUTS_LAYOUTS_H_
#define RETROGRAD_FUSION_LOWER_LAYOUTS_LAYOUTS_H_

#include <optional>
#include <vector>

#include "fusion/analysis/strided_view.h"
#include "fusion/plan/plan.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// Each can be switched off by its name in kFeatures (fusion/planner/planner.h).
struct LayoutOptions {
  bool follow = true;            // off: all that is free is row-major
  bool walk_order = true;        // elementwise values as most of what is walked with them
  bool pitches = true;           // gaps between rows that matmuls read, so that all begin aligned
  int64_t alignment_bytes = 16;  // at so many bytes: a device's matmul_alignment_bytes
};

struct ValueLayouts {
  std::vector<Layout> of;  // by value_index; values that are never stored (views) have no strides
  // A value lies otherwise than without LayoutOptions::walk_order, or is a copy for a cast that
  // does.
  bool walks_decide = false;
};

ValueLayouts AssignLayouts(const BackwardGraph& graph, const LayoutOptions& options = {});

// Whether a library call can read `value` as its operand, as it lies.
bool LibraryReads(const BackwardGraph& graph, absl::Span<const Layout> layouts, NodeId call,
                  ValueId value);

// The same, and along the axis that the call is made for (CallOp::lies_along).
bool LibraryPrefers(const BackwardGraph& graph, absl::Span<const Layout> layouts, NodeId call,
                    ValueId value);

// Whether a library call can store its result with these strides.
bool LibraryStores(const BackwardGraph& graph, ValueId result, absl::Span<const int64_t> strides);

// The strides that the value behind the views of an output must have, so that the output lies as
// the host requires; nullopt if no strides can do it.
std::optional<Layout> LayoutForOutput(const BackwardGraph& graph, const GraphOutput& output);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_LOWER_LAYOUTS_LAYOUTS_H_
