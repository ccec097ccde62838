// What the builder checks as it goes and Verify checks again: one node, one output, one string.
#ifndef RETROGRAD_GRAPH_IR_NODE_RULES_H_
#define RETROGRAD_GRAPH_IR_NODE_RULES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

inline constexpr size_t kMaxStringBytes = 200;
inline constexpr uint32_t kMaxNodes = 1u << 18;
inline constexpr uint32_t kMaxOperands = 1u << 22;  // of all nodes together

// At most kMaxStringBytes of UTF-8 without control characters. `what` names the string.
absl::Status CheckString(absl::string_view text, absl::string_view what);

// G5 and the input's description.
absl::Status CheckInput(const TensorType& type, const InputInfo& info);

absl::Status CheckOrigin(const Origin& origin);

// "node %12 (mul)".
std::string NodeName(size_t id, absl::string_view op);

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_IR_NODE_RULES_H_
