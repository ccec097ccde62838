// The oracle: evaluates a graph op by op on the CPU, in double, from the rows' reference functions.
// It shares nothing with the kernels that it judges.
//
// Values are dense row-major doubles; integers are exact up to 2^53. Arithmetic is always in
// double; the modes differ in what is rounded to its dtype:
//   kFloat64       nothing: casts between floating dtypes change nothing either
//   kRoundEveryOp  every result of every op
//   kRoundGiven    the values that `rounded` names, results of casts, and the operands of
//                  comparisons (which see their operands rounded, stored or not)
// Integer and bool results are wrapped to their dtype in every mode.
#ifndef RETROGRAD_GRAPH_REFERENCE_REFERENCE_H_
#define RETROGRAD_GRAPH_REFERENCE_REFERENCE_H_

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

using Values = std::vector<double>;

struct ReferenceOptions {
  enum Mode : uint8_t { kFloat64, kRoundEveryOp, kRoundGiven };
  Mode mode = kFloat64;
  std::vector<bool> rounded;  // kRoundGiven: by value_index; empty: none
  // Order in which an accumulate adds its contributions, by node id: operand numbers. Absent: as
  // they stand.
  absl::flat_hash_map<uint32_t, std::vector<uint32_t>> accumulate_order;
  bool keep_all = false;  // keep every value; otherwise those that outputs name
};

// The inputs' values, in the order of the input nodes' ids. Returns values by value_index, those
// not kept empty. Errors: wrong count or size of an input, an index outside its axis, attention
// with dropout (its mask belongs to another random stream), a tensor beyond 2^28 elements.
absl::StatusOr<std::vector<Values>> Evaluate(const BackwardGraph& graph,
                                             absl::Span<const Values> inputs,
                                             const ReferenceOptions& options = {});

// The scale of a tolerance: for every value the same expression over absolute values. Sums,
// differences and products are those of magnitudes; a nonlinear f gives |f(x)| + |f'(x)| times the
// magnitude of x. `values` are all values of the graph (keep_all). By value_index.
absl::StatusOr<std::vector<Values>> Magnitudes(const BackwardGraph& graph,
                                               absl::Span<const Values> values);

// Evaluates one node from its operands' values, nothing rounded but integers and bools; for tests
// of single kernels. Composites expand.
absl::StatusOr<std::vector<Values>> EvaluateNode(const BackwardGraph& graph, NodeId id,
                                                 absl::Span<const Values* const> operands);

// Node ids of the inputs in order: what `inputs` of Evaluate lines up with.
std::vector<NodeId> InputNodes(const BackwardGraph& graph);

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_REFERENCE_REFERENCE_H_
