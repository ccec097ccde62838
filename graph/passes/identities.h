// The local rules of simplification: one node and its producers.
#ifndef RETROGRAD_GRAPH_PASSES_IDENTITIES_H_
#define RETROGRAD_GRAPH_PASSES_IDENTITIES_H_

#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// A node and its place in a graph: what it computes, of which values.
struct NodeView {
  Op op;
  absl::Span<const ValueId> operands;
  const Attrs& attrs;
};

// What a rule may ask about a value.
struct ValueView {
  absl::FunctionRef<const TensorType&(ValueId)> type;
  absl::FunctionRef<NodeView(ValueId)> producer;
};

// A node that is not in a graph yet.
struct NewNode {
  Op op;
  std::vector<ValueId> operands;
  Attrs attrs;
};

// One step: the value that the node equals, or a simpler node, or nothing (monostate). `result` is
// the node's type; a replacement has the same type. The caller repeats until nothing is found.
using Simpler = std::variant<std::monostate, ValueId, NewNode>;
Simpler SimplifyOnce(const NodeView& node, const TensorType& result, const ValueView& values);

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_PASSES_IDENTITIES_H_
