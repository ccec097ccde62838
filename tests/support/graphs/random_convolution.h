// A random convolution around a tensor of given shape, for random graphs.
#ifndef RETROGRAD_TESTS_SUPPORT_GRAPHS_RANDOM_CONVOLUTION_H_
#define RETROGRAD_TESTS_SUPPORT_GRAPHS_RANDOM_CONVOLUTION_H_

#include <cstdint>
#include <optional>

#include "absl/functional/function_ref.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

struct RandomConvolution {
  Op op{};
  Attrs attrs;
  Shape operands[2], result;
  int given = 0;       // the operand that has the given shape
  int64_t folded = 1;  // products that an element of the result sums, at most
};

// `given` has 3 to 5 dims; `draw(low, high)` is a number of low..high. Nullopt where what it draws
// does not fit together.
std::optional<RandomConvolution> DrawConvolution(const Shape& given,
                                                 absl::FunctionRef<int64_t(int64_t, int64_t)> draw);

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_GRAPHS_RANDOM_CONVOLUTION_H_
