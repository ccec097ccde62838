// The order of values that are made element by element, where nothing else decides it: that of most
// tensors that are read and written along with them. A kernel that reads one tensor along its rows
// and another across them fetches a whole sector for each element of the second.
#ifndef RETROGRAD_FUSION_LOWER_LAYOUTS_WALK_ORDER_H_
#define RETROGRAD_FUSION_LOWER_LAYOUTS_WALK_ORDER_H_

#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "fusion/kernel/ir/layout.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// Elementwise values that read each other, not through a view or through reshapes alone, are walked
// together: most of them share kernels. Of each of `values`, which are elementwise: a layout along
// the dim along which most of these lie, of all that are walked with it: what is read from
// elsewhere, each once, and the elementwise values that are not among `values`: outputs and
// operands of calls. Results of calls do not count, whose order is as free, nor what is repeated.
// nullopt if the value lies so by `layouts`, or along a dim of as many, or if its dims do not tell
// that dim apart. layouts: of all values. of_no_order: as ValuesOfNoOrder says.
std::vector<std::optional<Layout>> OrdersOfWalks(const BackwardGraph& graph,
                                                 absl::Span<const Layout> layouts,
                                                 absl::Span<const ValueId> values,
                                                 const std::vector<bool>& of_no_order);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_LOWER_LAYOUTS_WALK_ORDER_H_
