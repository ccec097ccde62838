// Graphs with sizes that a symbol leaves open, and their graphs of numbers.
//
// A graph that was read from a file stands at its symbols' hints and keeps what the file says of
// sizes, until a pass makes another graph of it: it may be planned as it is, bound, or written
// again. A bound graph has numbers alone.
#ifndef RETROGRAD_GRAPH_PROTO_BIND_GRAPH_H_
#define RETROGRAD_GRAPH_PROTO_BIND_GRAPH_H_

#include <string>
#include <utility>
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

// A graph that is bound again and again: what it says of sizes is read once. May be used by several
// threads at once.
class GraphBinder {
 public:
  // InvalidArgument where what the graph says of sizes cannot be read.
  static absl::StatusOr<GraphBinder> Of(BackwardGraph graph);

  // None if the graph has numbers alone.
  const std::vector<SizeSymbol>& symbols() const { return table_.symbols; }
  // As BindGraph.
  absl::StatusOr<BackwardGraph> Bind(absl::Span<const SizeBinding> bindings) const;

 private:
  GraphBinder(BackwardGraph graph, SizeTable table)
      : graph_(std::move(graph)), table_(std::move(table)) {}

  BackwardGraph graph_;
  SizeTable table_;
};

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_PROTO_BIND_GRAPH_H_
