// Result types of every op from its operands' types and attributes. Pointwise operands broadcast
// like numpy's; dtypes follow the row's type rule strictly (no promotion). A refusal is a sentence
// with the numbers and the code of the broken rule (malformations.h); it does not name the node,
// which the caller knows (At).
#ifndef RETROGRAD_GRAPH_IR_STRUCTURAL_OPS_H_
#define RETROGRAD_GRAPH_IR_STRUCTURAL_OPS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "graph/ir/backward_graph.h"
#include "graph/ir/shape_rules.h"

namespace retrograd {

// Checks operand count, dtypes, shapes and attributes. Not for Op::input, whose type is given.
absl::StatusOr<std::vector<TensorType>> InferTypes(Op op,
                                                   absl::Span<const TensorType* const> operands,
                                                   const Attrs& attrs);

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_IR_STRUCTURAL_OPS_H_
