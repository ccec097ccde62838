// Result types of every op from its operands' types and attributes. Pointwise operands broadcast
// like numpy's; dtypes follow the row's type rule strictly (no promotion). A refusal is a sentence
// with the numbers and the code of the broken rule (malformations.h); it does not name the node,
// which the caller knows (At).
#ifndef RETROGRAD_GRAPH_STRUCTURAL_OPS_H_
#define RETROGRAD_GRAPH_STRUCTURAL_OPS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "graph/backward_graph.h"

namespace retrograd {

// Checks operand count, dtypes, shapes and attributes. Not for Op::input, whose type is given.
absl::StatusOr<std::vector<TensorType>> InferTypes(Op op,
                                                   absl::Span<const TensorType* const> operands,
                                                   const Attrs& attrs);

// Extents not negative, rank and element count within kMaxRank and kMaxElements.
absl::Status CheckShape(absl::Span<const int64_t> shape);

// Strides (empty: row-major) of a shape that has been checked: rank, range; for outputs also that
// each element has an address of its own.
absl::Status CheckStrides(absl::Span<const int64_t> shape, absl::Span<const int64_t> strides,
                          bool distinct);

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_STRUCTURAL_OPS_H_
