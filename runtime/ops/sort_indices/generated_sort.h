// Sorts of indices by kernels of ours, on every device: one by itself, or several by launches that
// they share.
#ifndef RETROGRAD_RUNTIME_OPS_SORT_INDICES_GENERATED_SORT_H_
#define RETROGRAD_RUNTIME_OPS_SORT_INDICES_GENERATED_SORT_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "fusion/ops/sort_indices/index_sort.h"
#include "runtime/device/device.h"

namespace retrograd {

// In a way of IndexSortsFor, with the call's offset. A kept list lies in memory that the call
// allocates and holds. direct: kernels take their addresses without a
// table, so that no launch of each run writes one; they are then of one size.
absl::StatusOr<std::unique_ptr<LoadedCall>> LoadGeneratedSort(Device& device, const Call& call,
                                                              const IndexSort& sort,
                                                              bool direct = false);
// The same of calls that share launches. Unimplemented where their sorts are not of one kind
// (SharedKindOf).
absl::StatusOr<std::unique_ptr<LoadedCall>> LoadSharedSorts(Device& device,
                                                            absl::Span<const ExpectedCall> calls,
                                                            bool direct = false);

// How the call is sorted on a device: kept where it may hold as much memory as that takes.
IndexSort IndexSortOf(const Call& call, const CallFacts& facts);
// Of calls that share launches: lists are kept where all of them may be.
std::vector<IndexSort> SharedSortsOf(absl::Span<const ExpectedCall> calls);

std::unique_ptr<CallLoader> MakeGeneratedSortLoader(Device& device, bool direct);
std::unique_ptr<SharedCallLoader> MakeSharedSortLoader(Device& device, bool direct);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_OPS_SORT_INDICES_GENERATED_SORT_H_
