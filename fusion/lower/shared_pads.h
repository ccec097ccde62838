// Matmuls that read what another one reads with zeros appended, for the alignment's sake, read it
// so too. A framework pads the operands whose sums are not of an aligned length (the logits'
// gradient times a vocabulary of 30,522 rows); the gradient of the weights, whose result it leaves
// alone, is as badly aligned.
#ifndef RETROGRAD_FUSION_LOWER_SHARED_PADS_H_
#define RETROGRAD_FUSION_LOWER_SHARED_PADS_H_

#include "absl/status/statusor.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// Each matmul of two matrices whose result has rows or columns for an axis that is not a multiple
// of 16 bytes, of an operand that another matmul reads with that axis padded to one: it multiplies
// the padded operand, and its result is a slice of that product. H200, cuBLASLt 13.0, bf16, 30522 x
// 768 x 4096: 257 us of 30,528 rows, 422 of 30,522 at the same pitch, 774 densely stored.
absl::StatusOr<BackwardGraph> SharePads(const BackwardGraph& graph);

// The one axis of a matrix that the node appends zeros to, so that its length becomes a multiple of
// 16 bytes, for a matmul that reads it; -1 of any other node.
int64_t AxisPaddedForMatMul(const BackwardGraph& graph, NodeId id);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_LOWER_SHARED_PADS_H_
