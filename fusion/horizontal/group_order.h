// Which groups of a plan must come after which others.
#ifndef RETROGRAD_FUSION_HORIZONTAL_GROUP_ORDER_H_
#define RETROGRAD_FUSION_HORIZONTAL_GROUP_ORDER_H_

#include <cstdint>
#include <vector>

#include "fusion/plan/plan.h"

namespace retrograd {

// By group: those that must come after it, and the number of those that must come before.
struct Successors {
  std::vector<std::vector<uint32_t>> after;
  std::vector<uint32_t> before;
};

// Readers come after the writer. Who adds to a value in place comes after its other readers.
Successors FindSuccessors(const BackwardGraph& graph, const std::vector<Group>& groups);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_HORIZONTAL_GROUP_ORDER_H_
