#include "runtime/ops/sort_indices/kept_list.h"

#include <vector>

#include "fusion/kernel/ir/scale.h"
#include "graph/base/status.h"

namespace retrograd {

absl::StatusOr<std::unique_ptr<KeptList>> KeptList::Make(Device& device, const IndexSort& sort) {
  const SortScratch scratch = SortScratchOf(sort);
  const int64_t list = CeilDiv(4 * scratch.words, kArenaAlignment) * kArenaAlignment;
  const int64_t bytes = list + 4 * sort.sorted.elements();
  RG_ASSIGN_OR_RETURN(void* const data, device.Allocate(bytes));
  auto kept = std::unique_ptr<KeptList>(new KeptList(device, data, list, bytes));
  const std::vector<int32_t> nothing(scratch.known_end, 0);
  RG_RETURN_IF_ERROR(device.CopyIn(data, nothing.data(), 4 * scratch.known_end));
  return kept;
}

}  // namespace retrograd
