// The text form of a graph: one node a line, exact both ways. ParseGraph(Print(g)) == g, for
// origins, attributes, strides and absent outputs too.
//
//   graph "mlp"
//   numerics tf32=1
//   origin @0 op="gelu_backward" instance=0 module="blocks.0"
//   %0 = input name="dy" kind=tangent  f32[8,4]
//   %1 = input name="x" kind=saved strides=[1,8] alignment=16 donated=1  f32[8,4]
//   %2 = mul %0 %1  f32[8,4]  ; @0 gelu_backward#0
//   %3 = sum %2 axes=[0]  f32[4]
//   output %3 name="bias"
//   output none name="weight"
//
// A node with several results is "%7:3 = ...", its results %7.0 (or %7), %7.1, %7.2. In text that
// is written by hand, names may be words (%dy), result types may be left out where they can be
// inferred (everywhere but on inputs), a line starting with # is a comment, and what follows ; is
// one too, except that @N there is the node's origin.
#ifndef RETROGRAD_GRAPH_TEXT_TEXT_H_
#define RETROGRAD_GRAPH_TEXT_TEXT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

std::string Print(const BackwardGraph& graph);

// One node as Print shows it, without the newline; for messages and explanations.
std::string PrintNode(const BackwardGraph& graph, NodeId id);

// Errors start with the code of the broken rule and name the line: "RG-G050 (T): line 3: ...".
absl::StatusOr<BackwardGraph> ParseGraph(absl::string_view text);

// "a\"b" with quotes; \xNN for bytes that would not print.
std::string Quote(absl::string_view text);

// Shortest text that reads back as the same double and not as an integer: "0.5", "3.0", "-inf".
std::string PrintDouble(double value);

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_TEXT_TEXT_H_
