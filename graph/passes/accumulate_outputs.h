// Gradients that are added to what their memory holds: outputs become sums with inputs of their
// own.
#ifndef RETROGRAD_GRAPH_PASSES_ACCUMULATE_OUTPUTS_H_
#define RETROGRAD_GRAPH_PASSES_ACCUMULATE_OUTPUTS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

struct AccumulatingGraph {
  BackwardGraph graph;
  // By new input, which stand behind the graph's own: the output that it is added to. At a run its
  // address is that output's.
  std::vector<uint32_t> outputs;
};

// The graph whose outputs with a 1 in `accumulate` (one for each output; absent ones are passed
// over) are what they were, plus an input of the same type and strides. InvalidArgument for an
// output that is no number: a bool has no sum.
absl::StatusOr<AccumulatingGraph> AccumulateOutputs(const BackwardGraph& graph,
                                                    absl::Span<const uint8_t> accumulate);

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_PASSES_ACCUMULATE_OUTPUTS_H_
