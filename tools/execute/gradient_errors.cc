#include "tools/execute/gradient_errors.h"

#include <cmath>

#include "graph/base/status.h"

namespace retrograd {
namespace {

double NormOf(const std::vector<double>& values) {
  double sum = 0;
  for (double v : values) sum += v * v;
  return std::sqrt(sum);
}

double Distance(const std::vector<double>& a, const std::vector<double>& b) {
  RG_CHECK(a.size() == b.size());
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

}  // namespace

std::vector<GradientError> GradientErrors(const std::vector<Gradient>& gradients,
                                          double tolerance) {
  double squares = 0;
  for (const Gradient& g : gradients) squares += NormOf(g.recorded) * NormOf(g.recorded);
  const double floor = kFloorShare * std::sqrt(squares);
  std::vector<GradientError> errors;
  for (const Gradient& g : gradients) {
    GradientError e{.name = g.name, .norm = NormOf(g.recorded)};
    e.below_floor = e.norm < floor;
    const double distance = Distance(g.computed, g.recorded);
    const double scale = std::max(e.norm, floor);
    e.error = distance == 0 ? 0 : distance / scale;
    e.rounding = e.error > tolerance && distance <= tolerance * scale + g.rounding;
    e.ok = e.error <= tolerance || e.rounding;
    errors.push_back(std::move(e));
  }
  return errors;
}

double ToleranceFor(const BackwardGraph& graph) {
  for (uint32_t n = 0; n < graph.num_nodes(); ++n) {
    for (const TensorType& type : graph.node(NodeId{n}).results) {
      if (IsNarrowFloat(type.dtype)) return 2e-2;
    }
  }
  return 1e-5;
}

}  // namespace retrograd
