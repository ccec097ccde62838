// Ops as people name them on a command line.
#ifndef RETROGRAD_TOOLS_EXPLAIN_OP_NAMES_H_
#define RETROGRAD_TOOLS_EXPLAIN_OP_NAMES_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// The ops that compute and bear a name; of one call of one original op, if it is not a number.
// Forms: %123 or 123 (of the lowered graph); OP#N, as aten.native_layer_norm_backward#7 ("aten."
// may be left out); OP alone where the graph has one; MODULE, as blocks.3.attn.q; MODULE:OP and
// MODULE:OP#N. A name of several calls is an error that lists them.
absl::StatusOr<std::vector<NodeId>> FindOps(const BackwardGraph& lowered, absl::string_view name);

// Two different ops with these names. Where a call became several ops, two that share an edge or a
// tensor, and of these the nearest.
absl::StatusOr<std::pair<NodeId, NodeId>> FindPair(const BackwardGraph& lowered,
                                                   absl::string_view a, absl::string_view b);

// "%123 mul bf16[8192,768] from aten.mul#7 in blocks.3.attn (model.py:33)", as the graph has it:
// not yet fit for a terminal.
std::string DescribeOp(const BackwardGraph& lowered, NodeId id);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_EXPLAIN_OP_NAMES_H_
