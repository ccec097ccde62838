// Every way in which a graph can be refused, with its stable code. A code is never reused; the
// table is also docs/malformations.md.
#ifndef RETROGRAD_GRAPH_BASE_MALFORMATIONS_H_
#define RETROGRAD_GRAPH_BASE_MALFORMATIONS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace retrograd {

enum class Malformation : uint8_t {
#define RG_MALFORMATION(NUMBER, NAME, INVARIANT, RULE) NAME = NUMBER,
#include "graph/base/malformations.def"
#undef RG_MALFORMATION
};

struct MalformationInfo {
  Malformation kind;
  absl::string_view code;       // "RG-G012"
  absl::string_view invariant;  // G1 to G6 of backward_graph.h; F: of the file, T: of the text form
  absl::string_view rule;       // what a legal graph looks like
};

const MalformationInfo& Info(Malformation kind);
absl::Span<const MalformationInfo> AllMalformations();

// "RG-G012 (G1): <text>", an InvalidArgument.
absl::Status Malformed(Malformation kind, absl::string_view text);

// The same status with a place set before its text: "RG-G012 (G1): <where>: <text>". A status
// without a code gets the place in front.
absl::Status At(absl::string_view where, const absl::Status& status);

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_BASE_MALFORMATIONS_H_
