// Groups of which there is one, and tables of one row.
#ifndef RETROGRAD_FUSION_LOWER_ONE_GROUP_H_
#define RETROGRAD_FUSION_LOWER_ONE_GROUP_H_

#include "absl/status/statusor.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// The largest elements of the only group are those of the places before its end: a reduction over
// the axis, which fuses with what makes the elements and with what reads the results, where a
// segment_amax is a barrier. So are the rows that an index picks of a table of one: that row where
// the index is 0 or -1, and zeros elsewhere. FP8 elements, of which not all types have an infinity,
// and axes without places are left as they are.
absl::StatusOr<BackwardGraph> UngroupSingles(const BackwardGraph& graph);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_LOWER_ONE_GROUP_H_
