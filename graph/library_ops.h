// Result types of the ops that stay whole for a library: matmul and attention backward. Called by
// InferTypes, which has checked operand counts and attribute types.
#ifndef RETROGRAD_GRAPH_LIBRARY_OPS_H_
#define RETROGRAD_GRAPH_LIBRARY_OPS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "graph/backward_graph.h"

namespace retrograd {

absl::StatusOr<std::vector<TensorType>> InferMatMul(absl::Span<const TensorType* const> operands,
                                                    const Attrs& attrs);

// Six operands, then a bias or none, then with dropout_p > 0 the random generator's seed and
// offset, which are integers.
absl::StatusOr<std::vector<TensorType>> InferAttention(absl::Span<const TensorType* const> operands,
                                                       const Attrs& attrs);

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_LIBRARY_OPS_H_
