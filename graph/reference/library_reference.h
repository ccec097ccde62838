// The reference of library ops, a row an op: each in a file of its own.
#ifndef RETROGRAD_GRAPH_REFERENCE_LIBRARY_REFERENCE_H_
#define RETROGRAD_GRAPH_REFERENCE_LIBRARY_REFERENCE_H_

#include "graph/reference/reference_ops.h"

namespace retrograd {

// A library op and what it is evaluated on. With `magnitudes` the operands are magnitudes, and the
// results are to be theirs; `exact` always holds the operands' values.
struct LibraryNode {
  Op op;
  const Attrs& attrs;
  absl::Span<const DenseTensor> operands;
  absl::Span<const DenseTensor> exact;
  absl::Span<const TensorType> results;
  bool magnitudes = false;
};

// Writes one dense tensor a result.
absl::Status EvaluateLibrary(const LibraryNode& node, absl::Span<double* const> out);

// One that several ops share is declared for each.
#define RG_LIBRARY_REFERENCE(OP, EVALUATE) \
  absl::Status EVALUATE(const LibraryNode& node, absl::Span<double* const> out);
#include "graph/reference/library_references.def"
#undef RG_LIBRARY_REFERENCE

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_REFERENCE_LIBRARY_REFERENCE_H_
