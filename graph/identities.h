// The local rules of simplification: one node and its producers.
#ifndef RETROGRAD_GRAPH_IDENTITIES_H_
#define RETROGRAD_GRAPH_IDENTITIES_H_

#include <variant>

#include "absl/functional/function_ref.h"
#include "graph/backward_graph.h"
#include "graph/node_record.h"

namespace retrograd {

// What a rule may ask about a value.
struct ValueView {
  absl::FunctionRef<const TensorType&(ValueId)> type;
  absl::FunctionRef<const NodeRecord&(ValueId)> producer;
};

// One step: the value that the node equals, or a simpler node, or nothing (monostate). `result` is
// the node's type; a replacement has the same type. The caller repeats until nothing is found.
using Simpler = std::variant<std::monostate, ValueId, NodeRecord>;
Simpler SimplifyOnce(const NodeRecord& node, const TensorType& result, const ValueView& values);

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_IDENTITIES_H_
