// The bodies of a sort's launches. They are written in names that codegen/sort/emit_index_sort.cc
// defines: constants k.., arguments index, w (scratch) and sorted, shared arrays.
#ifndef RETROGRAD_CODEGEN_SORT_SORT_TEXT_H_
#define RETROGRAD_CODEGEN_SORT_SORT_TEXT_H_

#include "absl/strings/string_view.h"

namespace retrograd {

// Owners: the list is dealt to the threads; then each block places the indices of its rows.
extern const absl::string_view kDealText, kReadPacksText, kOwnText;
// Digits: what reads a tile of the list, for the first pass and for the others, and how its indices
// are counted; the two launches of a pass; where each row begins in the sorted list.
extern const absl::string_view kReadIndicesText, kReadListText, kMatchText, kCountText, kPlaceText,
    kStartsText;

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_SORT_SORT_TEXT_H_
