// Sorts of indices by kernels of ours, on every device.
#ifndef RETROGRAD_RUNTIME_OPS_SORT_INDICES_GENERATED_SORT_H_
#define RETROGRAD_RUNTIME_OPS_SORT_INDICES_GENERATED_SORT_H_

#include <memory>

#include "absl/status/statusor.h"
#include "fusion/ops/sort_indices/index_sort.h"
#include "runtime/device/device.h"

namespace retrograd {

// In a way of IndexSortsFor, with the call's offset. A kept list lies in memory that the call
// allocates and holds. direct: kernels take their addresses without a
// table, so that no launch of each run writes one; they are then of one size.
absl::StatusOr<std::unique_ptr<LoadedCall>> LoadGeneratedSort(Device& device, const Call& call,
                                                              const IndexSort& sort,
                                                              bool direct = false);

// How the call is sorted on a device: kept where it may hold as much memory as that takes.
IndexSort IndexSortOf(const Call& call, const CallFacts& facts);

std::unique_ptr<CallLoader> MakeGeneratedSortLoader(Device& device, bool direct);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_OPS_SORT_INDICES_GENERATED_SORT_H_
