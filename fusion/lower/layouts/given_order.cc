#include "fusion/lower/layouts/given_order.h"

#include <algorithm>

#include "fusion/kernel/build/build.h"

namespace retrograd {

std::vector<bool> ValuesOfNoOrder(const BackwardGraph& g) {
  std::vector<bool> none(g.num_values());
  for (uint32_t i = 0; i < g.num_nodes(); ++i) {
    const NodeId id{i};
    if (!IsElementwise(g, id)) continue;
    const int64_t elements = g.type(id).elements();
    const absl::Span<const ValueId> operands = g.operands(id);
    none[g.value_index({id, 0})] = std::all_of(operands.begin(), operands.end(), [&](ValueId v) {
      const ValueId stored = BehindViews(g, v);
      return g.type(stored).elements() < elements || IsConstant(g, stored.node) ||
             none[g.value_index(stored)];
    });
  }
  return none;
}

}  // namespace retrograd
