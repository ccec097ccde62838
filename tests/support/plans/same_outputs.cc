#include "tests/support/plans/same_outputs.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "graph/reference/reference.h"
#include "tests/catch.h"
#include "tests/support/graphs/random_graph.h"

namespace retrograd {

double LargestDifference(const BackwardGraph& a, const BackwardGraph& b) {
  const std::vector<Values> inputs = RandomInputs(a, 7);
  const auto va = Evaluate(a, inputs), vb = Evaluate(b, inputs);
  REQUIRE(va.ok());
  REQUIRE(vb.ok());
  REQUIRE(a.outputs().size() == b.outputs().size());
  double worst = 0;
  for (size_t o = 0; o < a.outputs().size(); ++o) {
    if (!a.outputs()[o].value) continue;
    const Values& x = (*va)[a.value_index(*a.outputs()[o].value)];
    const Values& y = (*vb)[b.value_index(*b.outputs()[o].value)];
    REQUIRE(x.size() == y.size());
    double largest = 1e-30, error = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      largest = std::max(largest, std::abs(x[i]));
      const double difference = std::abs(x[i] - y[i]);
      error = difference <= error ? error : difference;  // not a number is larger
    }
    const double share = error / largest;
    worst = share <= worst ? worst : share;
  }
  return worst;
}

}  // namespace retrograd
