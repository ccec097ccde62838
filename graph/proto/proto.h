// The interchange form: files of graph.proto, and the text form in files that end in .rgt.
//
// Files are not trusted. Nothing is allocated for a count or a length before the bytes for it have
// been seen: the file is first walked as raw fields, which checks its frame and counts its nodes,
// then read node by node into a GraphBuilder. Memory stays below 8 times the file's size + 64 MiB,
// and a refusal takes less than two seconds. Each refusal carries a code of malformations.h and
// names the node.
#ifndef RETROGRAD_GRAPH_PROTO_PROTO_H_
#define RETROGRAD_GRAPH_PROTO_PROTO_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

inline constexpr int kSchemaMajor = 1;
inline constexpr int kSchemaMinor = 1;

// Deterministic: equal graphs give equal bytes.
std::string SerializeGraph(const BackwardGraph& graph);

absl::StatusOr<BackwardGraph> ParseGraphProto(absl::string_view bytes);

// NotFound or another file error if the file cannot be read; the path is named in every error.
absl::StatusOr<BackwardGraph> LoadGraph(const std::string& path);

// Writes a temporary file beside `path`, flushes it to disk and renames it: whoever looks sees the
// old file or the whole new one.
absl::Status SaveGraph(const BackwardGraph& graph, const std::string& path);

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_PROTO_PROTO_H_
