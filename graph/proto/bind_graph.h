// Graphs with sizes that a symbol leaves open, and their graphs of numbers.
//
// A graph that was read from a file stands at its symbols' hints and keeps what the file says of
// sizes, until a pass makes another graph of it: it may be planned as it is, bound, or written
// again. A bound graph has numbers alone.
#ifndef RETROGRAD_GRAPH_PROTO_BIND_GRAPH_H_
#define RETROGRAD_GRAPH_PROTO_BIND_GRAPH_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "graph/ir/backward_graph.h"
#include "graph/symbols/bindings.h"
#include "graph/symbols/size_table.h"

namespace retrograd {

// The graph's symbols, none if it has numbers alone.
absl::StatusOr<std::vector<SizeSymbol>> SymbolsOf(const BackwardGraph& graph);

// "s0=64, s1=128": at which hints the graph stands; "" if it has no symbols.
std::string HintsOf(const BackwardGraph& graph);

// The graph of numbers. Each symbol needs a value: InvalidArgument, OutOfRange, or
// FailedPrecondition for values at which the graph would have other nodes, says which and why.
absl::StatusOr<BackwardGraph> BindGraph(const BackwardGraph& graph,
                                        absl::Span<const SizeBinding> bindings);

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_PROTO_BIND_GRAPH_H_
