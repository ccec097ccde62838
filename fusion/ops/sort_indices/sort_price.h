// What sorts of index lists cost, alone or with launches that they share.
#ifndef RETROGRAD_FUSION_OPS_SORT_INDICES_SORT_PRICE_H_
#define RETROGRAD_FUSION_OPS_SORT_INDICES_SORT_PRICE_H_

#include <cstddef>
#include <tuple>

#include "absl/types/span.h"
#include "fusion/cost/kernel_cost.h"
#include "fusion/device/device_spec.h"
#include "fusion/ops/sort_indices/index_sort.h"

namespace retrograd {

// Of sorts that share launches, at most: what a launch takes as its arguments is bounded
// (runtime/gpu/gpu_kernels.cc).
inline constexpr size_t kMostSharedSorts = 32;

// Sorts may share launches that are equal in this, as each is sorted alone: the way, and what each
// launch does. Launches count where lists go by digits: by buckets some have one less.
using SortKind = std::tuple<SortWay, int, int64_t, bool>;  // launches, threads, may be kept
SortKind SharedKindOf(const IndexSort& sort);

// Of sorts in one way. Each launch has its time once; the passes over the indices and the starts
// of rows add up. In one launch a thread goes through its part of the list, in as many blocks at a
// time as the device holds. Blocks of several lists fill the device, so that each SM goes through
// one at a time: 20 lists of 4,096 indices, with some 4,400 blocks, took 88 us on an H200.
Price PriceSorts(absl::Span<const IndexSort> sorts, const DeviceSpec& device, bool explain);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_OPS_SORT_INDICES_SORT_PRICE_H_
