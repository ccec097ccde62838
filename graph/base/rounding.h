// Rounding of a double to what a dtype can hold; kept apart from every kernel, as the oracle needs.
#ifndef RETROGRAD_GRAPH_BASE_ROUNDING_H_
#define RETROGRAD_GRAPH_BASE_ROUNDING_H_

#include "absl/types/span.h"
#include "graph/base/tensor_type.h"

namespace retrograd {

// To the nearest value of a floating dtype, ties to even, overflow to infinity, or to NaN where the
// dtype has no infinity (f8e4m3, and both fnuz forms, which have no -0 either), subnormals kept.
// Integers: toward zero, then modulo 2^bits (NaN and what exceeds 2^63 give 0). Bool: 1 unless 0.
double RoundTo(DType dtype, double value);
void RoundTo(DType dtype, absl::Span<double> values);

// The largest finite number of a floating dtype.
double LargestOf(DType dtype);

// The distance from |value| to the next larger number of a floating dtype; 1 for the others.
double UnitInLastPlace(DType dtype, double value);

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_BASE_ROUNDING_H_
