// How much rounding alone may change a gradient.
#ifndef RETROGRAD_TOOLS_EXECUTE_GRADIENT_ROUNDINGS_H_
#define RETROGRAD_TOOLS_EXECUTE_GRADIENT_ROUNDINGS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "graph/ir/backward_graph.h"
#include "tools/support/safetensors.h"

namespace retrograd {

// For each output of the graph, the norm of what rounding may add to it: 4 units of rounding of the
// graph's narrowest floating type (2^-8 for bf16, 2^-11 for fp16, 2^-24 for fp32) of the same
// expression over absolute values (Magnitudes() in graph/reference/reference.h). A gradient that is
// mathematically zero, as of a bias before batch norm, is such rounding and nothing else. 0 where
// the host expects no output.
//
// Evaluates the graph in double on the CPU from the bundle's inputs. Errors: an input that the
// bundle does not have, an op that the reference does not evaluate.
absl::StatusOr<std::vector<double>> GradientRoundings(const BackwardGraph& graph,
                                                      const Bundle& bundle);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_EXECUTE_GRADIENT_ROUNDINGS_H_
