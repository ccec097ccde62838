// The launches that sort a list of indices (fusion/ops/sort_indices/index_sort.h).
#ifndef RETROGRAD_CODEGEN_SORT_EMIT_INDEX_SORT_H_
#define RETROGRAD_CODEGEN_SORT_EMIT_INDEX_SORT_H_

#include <vector>

#include "absl/types/span.h"
#include "codegen/print/kernel.h"
#include "fusion/ops/sort_indices/index_sort.h"

namespace retrograd {

// Addresses of a sort's launches, by number.
enum SortSlot : int { kSortIndex, kSortScratch, kSortResult };
inline constexpr int kSortSlots = 3;

struct SortLaunch {
  struct Arg {
    SortSlot slot = kSortIndex;
    bool written = false;
    bool fresh = false;  // no launch before has written it
    int sort = 0;        // of those that share the launch, whose address it is
  };
  Kernel kernel;
  std::vector<Arg> args;  // by the kernel's argument
};

// direct: Kernel::direct, of all.
std::vector<SortLaunch> EmitIndexSort(const IndexSort& sort, Dialect dialect, bool direct = false);
// Of sorts that share their launches: of one kind (SharedKindOf), in the ways of TogetherOf, all
// kept or none.
std::vector<SortLaunch> EmitIndexSorts(absl::Span<const IndexSort> sorts, Dialect dialect,
                                       bool direct = false);

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_SORT_EMIT_INDEX_SORT_H_
