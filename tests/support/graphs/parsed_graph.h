// Graphs of a test's own text, and what they compute.
#ifndef RETROGRAD_TESTS_SUPPORT_GRAPHS_PARSED_GRAPH_H_
#define RETROGRAD_TESTS_SUPPORT_GRAPHS_PARSED_GRAPH_H_

#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "graph/reference/reference.h"
#include "graph/text/text.h"
#include "tests/catch.h"

namespace retrograd {

// The graph of a text that must be legal.
inline BackwardGraph Parse(absl::string_view text) {
  auto graph = ParseGraph(text);
  REQUIRE(graph.status().ToString() == "OK");
  return *std::move(graph);
}

// The first output's elements, row-major.
inline Values FirstOutput(const BackwardGraph& graph, const std::vector<Values>& inputs) {
  auto values = Evaluate(graph, inputs);
  REQUIRE(values.status().ToString() == "OK");
  return (*values)[graph.value_index(*graph.outputs()[0].value)];
}

inline bool HasOp(const BackwardGraph& graph, Op op) {
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    if (graph.op(NodeId{i}) == op) return true;
  }
  return false;
}

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_GRAPHS_PARSED_GRAPH_H_
