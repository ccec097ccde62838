// A node as passes talk about it before it is in a graph: what it computes, without its place.
#ifndef RETROGRAD_GRAPH_NODE_RECORD_H_
#define RETROGRAD_GRAPH_NODE_RECORD_H_

#include <utility>
#include <vector>

#include "graph/backward_graph.h"

namespace retrograd {

struct NodeRecord {
  Op op = Op::input;
  std::vector<ValueId> operands;
  Attrs attrs;

  friend bool operator==(const NodeRecord&, const NodeRecord&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const NodeRecord& n) {
    h = H::combine(std::move(h), n.op, n.operands);
    for (const auto& [name, value] : n.attrs.all()) {
      h = H::combine(std::move(h), name, value.index());
      if (const auto* integer = std::get_if<int64_t>(&value)) {
        h = H::combine(std::move(h), *integer);
      } else if (const auto* number = std::get_if<double>(&value)) {
        h = H::combine(std::move(h), *number);
      } else if (const auto* text = std::get_if<std::string>(&value)) {
        h = H::combine(std::move(h), *text);
      } else {
        h = H::combine(std::move(h), std::get<std::vector<int64_t>>(value));
      }
    }
    return h;
  }
};

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_NODE_RECORD_H_
