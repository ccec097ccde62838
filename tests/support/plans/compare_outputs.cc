#include "tests/support/plans/compare_outputs.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

bool Agrees(double got, double want, double bound) {
  if (std::fabs(got - want) <= bound) return true;
  return (std::isnan(got) && std::isnan(want)) || (std::isinf(want) && got == want);
}

}  // namespace

absl::Status CompareWithReference(const BackwardGraph& graph, const std::vector<Values>& inputs,
                                  const std::vector<Values>& outputs, double tolerance) {
  constexpr double kLeastMagnitude = 1e-30;
  RG_ASSIGN_OR_RETURN(
      const std::vector<Values> all,
      Evaluate(graph, inputs, {.mode = ReferenceOptions::kFloat64, .keep_all = true}));
  RG_ASSIGN_OR_RETURN(const std::vector<Values> scale, Magnitudes(graph, all));
  for (size_t o = 0; o < graph.outputs().size(); ++o) {
    if (!graph.outputs()[o].value) continue;
    const size_t v = graph.value_index(*graph.outputs()[o].value);
    if (outputs[o].size() != all[v].size()) {
      return absl::InternalError(absl::StrFormat("output %d has %d elements instead of %d", o,
                                                 outputs[o].size(), all[v].size()));
    }
    for (size_t i = 0; i < all[v].size(); ++i) {
      const double bound = tolerance * std::max(scale[v][i], kLeastMagnitude);
      if (Agrees(outputs[o][i], all[v][i], bound)) continue;
      return absl::InternalError(absl::StrFormat("output %d, element %d is %.17g instead of %.17g",
                                                 o, i, outputs[o][i], all[v][i]));
    }
  }
  return absl::OkStatus();
}

}  // namespace retrograd
