// What a random graph may hold.
#ifndef RETROGRAD_TESTS_SUPPORT_GRAPHS_RANDOM_GRAPH_RANDOM_GRAPH_OPTIONS_H_
#define RETROGRAD_TESTS_SUPPORT_GRAPHS_RANDOM_GRAPH_RANDOM_GRAPH_OPTIONS_H_

#include <cstdint>

namespace retrograd {

struct RandomGraphOptions {
  enum DTypes : uint8_t { kFp32, kBf16, kMixed, kFp64 };
  DTypes dtypes = kMixed;  // of the floating values; kMixed: fp32 and bf16 with casts
  int min_ops = 5;         // ops besides inputs and constants
  int max_ops = 40;
  int64_t max_extent = 13;      // of one dim
  int64_t max_elements = 4096;  // of one tensor
  bool contractions = true;     // matmuls, also of groups, and convolutions
  // index_select, gather, index_add, scatter_lines, strided views, segment_amax
  bool indexed = true;
  bool accumulates = true;  // accumulate nodes and slice_scatter into zeros
  bool transforms = true;   // stages of fast transforms, products of permuted operands
  bool strides = true;      // inputs and outputs that are not row-major
};

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_GRAPHS_RANDOM_GRAPH_RANDOM_GRAPH_OPTIONS_H_
