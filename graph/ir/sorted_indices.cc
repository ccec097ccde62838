#include "graph/ir/sorted_indices.h"

#include "absl/strings/str_cat.h"
#include "graph/base/malformations.h"

namespace retrograd {

absl::Status CheckSorted(Op op, const Attrs& attrs, absl::Span<const Node* const> makers) {
  if (op != Op::segment_add) return absl::OkStatus();
  const Node &base = *makers[0], &sort = *makers[1];
  if (sort.op != Op::sort_indices) {
    return Malformed(Malformation::kSortedIndex,
                     absl::StrCat("operand 1 is a result of ", Name(sort.op)));
  }
  const int64_t rows = base.results[0].shape[attrs.Int("axis")];
  if (sort.attrs.Int("rows") == rows) return absl::OkStatus();
  return Malformed(Malformation::kSortedIndex,
                   absl::StrCat("indices into ", sort.attrs.Int("rows"),
                                " rows are sorted, the base has ", rows));
}

}  // namespace retrograd
