// One op of the reference evaluator on dense doubles. Part of graph/reference/reference.cc; use
// that.
#ifndef RETROGRAD_GRAPH_REFERENCE_REFERENCE_OPS_H_
#define RETROGRAD_GRAPH_REFERENCE_REFERENCE_OPS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

struct DenseTensor {
  const TensorType* type = nullptr;
  const double* data = nullptr;
};

// result[i] = f(operands broadcast at i) for any f over an array of operands.
void EvaluatePointwise(absl::Span<const DenseTensor> operands, const TensorType& result,
                       double (*f)(const double*), double* out);

// full and iota.
void EvaluateConstant(Op op, const Attrs& attrs, const TensorType& result, double* out);

// Every pattern whose arithmetic is linear in the operands that are not indices, and amax and
// amin: reductions, views, joins, indexed ops, accumulate, scans. `order`: of an accumulate's
// contributions, empty: as they stand.
absl::Status EvaluateLinear(Op op, const Attrs& attrs, absl::Span<const DenseTensor> operands,
                            const TensorType& result, absl::Span<const uint32_t> order,
                            double* out);

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_REFERENCE_REFERENCE_OPS_H_
