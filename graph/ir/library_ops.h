// Result types of the ops that stay whole for a library: matmul and attention backward. Called by
// InferTypes, which has checked operand counts and attribute types.
#ifndef RETROGRAD_GRAPH_IR_LIBRARY_OPS_H_
#define RETROGRAD_GRAPH_IR_LIBRARY_OPS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

absl::StatusOr<std::vector<TensorType>> InferLibrary(Op op,
                                                     absl::Span<const TensorType* const> operands,
                                                     const Attrs& attrs);

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_IR_LIBRARY_OPS_H_
