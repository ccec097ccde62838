// Random legal graphs for property tests: every pattern and library op but attention, and no
// composites, small odd and even extents, values that stay tame. Print the seed when a property
// fails: the same seed and options give the same graph anywhere.
#ifndef RETROGRAD_TESTS_SUPPORT_GRAPHS_RANDOM_GRAPH_H_
#define RETROGRAD_TESTS_SUPPORT_GRAPHS_RANDOM_GRAPH_H_

#include <cstdint>
#include <vector>

#include "graph/ir/backward_graph.h"
#include "graph/reference/reference.h"

namespace retrograd {

struct RandomGraphOptions {
  enum DTypes : uint8_t { kFp32, kBf16, kMixed, kFp64 };
  DTypes dtypes = kMixed;  // of the floating values; kMixed: fp32 and bf16 with casts
  int min_ops = 5;         // ops besides inputs and constants
  int max_ops = 40;
  int64_t max_extent = 13;      // of one dim
  int64_t max_elements = 4096;  // of one tensor
  bool contractions = true;     // matmuls and convolutions
  bool indexed = true;          // index_select, gather, index_add, strided views
  bool accumulates = true;      // accumulate nodes and slice_scatter into zeros
  bool strides = true;          // inputs and outputs that are not row-major
};

BackwardGraph RandomGraph(uint32_t seed, const RandomGraphOptions& options = {});

// Values for the graph's inputs, in the order of InputNodes: floats in [-2, 2] that their dtype can
// hold, integers that are legal indices of every axis on which the graph uses them.
std::vector<Values> RandomInputs(const BackwardGraph& graph, uint32_t seed);

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_GRAPHS_RANDOM_GRAPH_H_
