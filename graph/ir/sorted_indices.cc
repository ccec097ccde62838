#include "graph/ir/sorted_indices.h"

#include "absl/strings/str_cat.h"
#include "graph/base/malformations.h"

namespace retrograd {

absl::Status CheckSorted(const Attrs& attrs, const TensorType& base, const Node& maker) {
  if (maker.op != Op::sort_indices) {
    return Malformed(Malformation::kSortedIndex,
                     absl::StrCat("operand 1 is a result of ", Name(maker.op)));
  }
  const int64_t rows = base.shape[attrs.Int("axis")], sorted = maker.attrs.Int("rows");
  if (sorted == rows) return absl::OkStatus();
  return Malformed(Malformation::kSortedIndex,
                   absl::StrCat("indices into ", sorted, " rows are sorted, the base has ", rows));
}

}  // namespace retrograd
