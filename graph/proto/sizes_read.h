// The sizes of a graph file: the message Sizes, checked.
#ifndef RETROGRAD_GRAPH_PROTO_SIZES_READ_H_
#define RETROGRAD_GRAPH_PROTO_SIZES_READ_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "graph/ir/backward_graph.h"
#include "graph/symbols/size_table.h"

namespace retrograd {

// bytes: of a message Sizes. Every place in a list is one of it; atoms stand before their users;
// hints are values that their symbols may have.
absl::StatusOr<SizeTable> ReadSizes(absl::string_view bytes);

// Malformed unless the table at its hints gives the numbers of the graph.
absl::Status CheckSizes(const BackwardGraph& graph, const SizeTable& table);

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_PROTO_SIZES_READ_H_
