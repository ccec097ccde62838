// The order in which a library call stores its result, where it is free: that in which what reads
// the result reads other tensors. A kernel that reads one tensor along its rows and another across
// them fetches a whole sector for each element of the second.
#ifndef RETROGRAD_FUSION_LOWER_LAYOUTS_READER_ORDER_H_
#define RETROGRAD_FUSION_LOWER_LAYOUTS_READER_ORDER_H_

#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "fusion/kernel/ir/layout.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// By result of a call: its layout in the order of most of: the tensors that are read beside it, by
// the first op that reads any, and what is stored of it (an output, an operand of a call, a part of
// a join). nullopt if `layouts` has that order, or it is no more than as good. Results of other
// calls do not count: their order is as free. layouts: of all values.
std::vector<std::optional<Layout>> OrdersOfReaders(const BackwardGraph& graph,
                                                   absl::Span<const Layout> layouts,
                                                   absl::Span<const ValueId> results);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_LOWER_LAYOUTS_READER_ORDER_H_
