// How far computed gradients are from recorded ones.
#ifndef RETROGRAD_TOOLS_EXECUTE_GRADIENT_ERRORS_H_
#define RETROGRAD_TOOLS_EXECUTE_GRADIENT_ERRORS_H_

#include <string>
#include <vector>

#include "graph/ir/backward_graph.h"

namespace retrograd {

struct Gradient {
  std::string name;
  std::vector<double> computed, recorded;  // the same elements in the same order
  double rounding = 0;                     // norm of what rounding alone may add
};

struct GradientError {
  std::string name;
  double error = 0;          // ||computed - recorded|| / max(||recorded||, floor)
  double norm = 0;           // ||recorded||
  bool below_floor = false;  // its own norm is below the floor, so the floor divides
  bool ok = false;           // within the tolerance, or within rounding; a NaN is not
  bool rounding = false;     // beyond the tolerance, but within what rounding alone may add
};

// The floor is 1e-5 of the norm of all gradients together: a gradient that is mathematically zero
// (a key projection's bias under softmax) holds rounding noise alone, and dividing by its own norm
// would say nothing.
inline constexpr double kFloorShare = 1e-5;

// ok: ||computed - recorded|| <= tolerance x max(||recorded||, floor) + rounding.
std::vector<GradientError> GradientErrors(const std::vector<Gradient>& gradients, double tolerance);

// What two correct executions of one graph may differ by. fp32 (and fp64) throughout: 1e-5, some
// eighty units in the last place, for sums of thousands of terms in another order. With bf16 or
// fp16 values: 2e-2, five units in the last place of bf16; the framework rounds every intermediate
// result to bf16, a fused kernel keeps it in fp32, and a chain of layers adds such differences up.
double ToleranceFor(const BackwardGraph& graph);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_EXECUTE_GRADIENT_ERRORS_H_
