// Matmuls whose operands' rows are no multiples of a library's vectors take several times as long
// (fusion/ops/matmul/matmul_cost.cc). Zeros are appended to operands where that pays.
#ifndef RETROGRAD_FUSION_LOWER_PAD_OPERANDS_H_
#define RETROGRAD_FUSION_LOWER_PAD_OPERANDS_H_

#include "absl/status/statusor.h"
#include "fusion/device/device_spec.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// Each matmul of 16-bit matrices of which m, n or k is no multiple of the device's alignment: it
// multiplies operands with zeros behind those lengths, and its result is a slice of that product,
// where prices say that it wins. A pad that the graph has already, or that another matmul is given,
// costs nothing more; any other counts as a copy of its operand, and a slice as a copy of the
// result, which is what they cost at most: kernels often make them on the way.
absl::StatusOr<BackwardGraph> PadOperands(const BackwardGraph& graph, const DeviceSpec& device);

// The one axis of a matrix that the node appends zeros to, so that its length becomes a multiple of
// the alignment, for a matmul that reads it; -1 of any other node.
int64_t AxisPaddedForMatMul(const BackwardGraph& graph, NodeId id, int64_t alignment_bytes);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_LOWER_PAD_OPERANDS_H_
