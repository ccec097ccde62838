// The names closest to one that was mistyped, for error messages.
#ifndef RETROGRAD_GRAPH_BASE_NEAR_NAMES_H_
#define RETROGRAD_GRAPH_BASE_NEAR_NAMES_H_

#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace retrograd {

// At most three names, nearest first by edit distance (a name that contains the other counts as
// near); empty if none is near.
std::vector<absl::string_view> NearNames(absl::string_view name,
                                         absl::Span<const absl::string_view> known);

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_BASE_NEAR_NAMES_H_
