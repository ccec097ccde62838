// A run's outputs against the reference evaluator's.
#ifndef RETROGRAD_TESTS_SUPPORT_PLANS_COMPARE_OUTPUTS_H_
#define RETROGRAD_TESTS_SUPPORT_PLANS_COMPARE_OUTPUTS_H_

#include <vector>

#include "absl/status/status.h"
#include "graph/ir/backward_graph.h"
#include "graph/reference/reference.h"

namespace retrograd {

// OK where each element of `outputs` (dense row-major, by output number) is within tolerance x A of
// the reference in float64; A is the same expression over absolute values. Internal, with the first
// element that is not. NaN stands for NaN, an infinity for itself.
absl::Status CompareWithReference(const BackwardGraph& graph, const std::vector<Values>& inputs,
                                  const std::vector<Values>& outputs, double tolerance);

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_PLANS_COMPARE_OUTPUTS_H_
