// Whether two graphs of the same inputs and outputs mean the same.
#ifndef RETROGRAD_TESTS_SUPPORT_PLANS_SAME_OUTPUTS_H_
#define RETROGRAD_TESTS_SUPPORT_PLANS_SAME_OUTPUTS_H_

#include "graph/ir/backward_graph.h"

namespace retrograd {

// The largest difference between the two graphs' outputs by the reference evaluator, on random
// inputs of the first one, each as a share of that output's largest value. Fails the test if either
// cannot be evaluated.
double LargestDifference(const BackwardGraph& a, const BackwardGraph& b);

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_PLANS_SAME_OUTPUTS_H_
