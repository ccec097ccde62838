// Sorts of indices by kernels of ours, on every device.
#ifndef RETROGRAD_RUNTIME_OPS_SORT_INDICES_GENERATED_SORT_H_
#define RETROGRAD_RUNTIME_OPS_SORT_INDICES_GENERATED_SORT_H_

#include <memory>

#include "absl/status/statusor.h"
#include "fusion/ops/sort_indices/index_sort.h"
#include "runtime/device/device.h"

namespace retrograd {

absl::StatusOr<std::unique_ptr<LoadedCall>> LoadGeneratedSort(Device& device, const Call& call);
// In a way of IndexSortsFor, with the call's offset.
absl::StatusOr<std::unique_ptr<LoadedCall>> LoadGeneratedSort(Device& device, const Call& call,
                                                              const IndexSort& sort);

std::unique_ptr<CallLoader> MakeGeneratedSortLoader(Device& device);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_OPS_SORT_INDICES_GENERATED_SORT_H_
