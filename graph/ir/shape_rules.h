// What shapes and strides are legal, for every tensor alike.
#ifndef RETROGRAD_GRAPH_IR_SHAPE_RULES_H_
#define RETROGRAD_GRAPH_IR_SHAPE_RULES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace retrograd {

// Extents not negative, rank and element count within kMaxRank and kMaxElements.
absl::Status CheckShape(absl::Span<const int64_t> shape);

// Strides (empty: row-major) of a shape that has been checked: rank, range; for outputs also that
// each element has an address of its own.
absl::Status CheckStrides(absl::Span<const int64_t> shape, absl::Span<const int64_t> strides,
                          bool distinct);

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_IR_SHAPE_RULES_H_
