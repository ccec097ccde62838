// The numbers of a table's sizes for values of its symbols.
#ifndef RETROGRAD_GRAPH_SYMBOLS_SIZE_VALUES_H_
#define RETROGRAD_GRAPH_SYMBOLS_SIZE_VALUES_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "graph/symbols/size_table.h"

namespace retrograd {

// One number for each of table.polynomials. symbols: one for each of table.symbols. OutOfRange for
// a number, or one on the way to it, that int64 does not hold; InvalidArgument for a division by 0.
absl::StatusOr<std::vector<int64_t>> EvaluateSizes(const SizeTable& table,
                                                   absl::Span<const int64_t> symbols);

// FailedPrecondition for the first fact that does not hold. values: as EvaluateSizes gives them.
absl::Status CheckFacts(const SizeTable& table, absl::Span<const int64_t> values);

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_SYMBOLS_SIZE_VALUES_H_
