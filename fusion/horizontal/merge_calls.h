// One group of several library calls that share launches.
#ifndef RETROGRAD_FUSION_HORIZONTAL_MERGE_CALLS_H_
#define RETROGRAD_FUSION_HORIZONTAL_MERGE_CALLS_H_

#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "fusion/cost/kernel_cost.h"
#include "fusion/plan/plan.h"

namespace retrograd {

// The groups with these numbers, which are calls, become one that takes `price`. They are left
// without ops.
Group MergeCalls(absl::Span<const size_t> together, const Price& price, std::vector<Group>& groups);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_HORIZONTAL_MERGE_CALLS_H_
