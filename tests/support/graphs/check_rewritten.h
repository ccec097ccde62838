// A graph that a pass has rewritten has the gradients that it had.
#ifndef RETROGRAD_TESTS_SUPPORT_GRAPHS_CHECK_REWRITTEN_H_
#define RETROGRAD_TESTS_SUPPORT_GRAPHS_CHECK_REWRITTEN_H_

#include "graph/ir/backward_graph.h"

namespace retrograd {

// The rewritten graph's reference in float64, and the kernels of the plan of `run` (either graph)
// in a build that checks accesses, within `bound`, against the graph's own reference.
void CheckRewritten(const BackwardGraph& g, const BackwardGraph& rewritten,
                    const BackwardGraph& run, double bound);

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_GRAPHS_CHECK_REWRITTEN_H_
