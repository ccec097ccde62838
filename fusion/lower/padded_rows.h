// What a framework computes for rows of a badly aligned length, from rows that are padded and into
// rows that are padded again for a matmul, is computed for the padded length: kernels then read and
// write whole vectors, and nothing is copied.
#ifndef RETROGRAD_FUSION_LOWER_PADDED_ROWS_H_
#define RETROGRAD_FUSION_LOWER_PADDED_ROWS_H_

#include "absl/status/statusor.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// pad(y), where zeros are appended to y's rows so that they become aligned for a matmul
// (AxisPaddedForMatMul), becomes where(column < length, y', 0): y' is y with every op between it
// and what lies in memory done on rows of the padded length. Sums along the rows leave the appended
// columns out; other readers of y read a slice. A pad that such ops do not lead to stays.
absl::StatusOr<BackwardGraph> PadRows(const BackwardGraph& graph, int64_t alignment_bytes = 16);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_LOWER_PADDED_ROWS_H_
