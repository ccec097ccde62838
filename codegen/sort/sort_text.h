// The bodies of a sort's launches. They are written in names that codegen/sort/emit_index_sort.cc
// defines: constants k.., arguments index, w (scratch) and sorted, shared arrays. A line that is
// RG_MATCH stands for kMatchText, and so on.
#ifndef RETROGRAD_CODEGEN_SORT_SORT_TEXT_H_
#define RETROGRAD_CODEGEN_SORT_SORT_TEXT_H_

#include "absl/strings/string_view.h"

namespace retrograd {

// Steps: RG_MATCH, RG_COLUMN, RG_SCAN and RG_COUNTERS.
extern const absl::string_view kMatchText, kColumnText, kScanText, kCountersText;
// Of kept lists: what makes RG_COMPARE, RG_UNCHANGED and RG_FORGET, what stands at
// RG_DECLARE_KNOWN, RG_LOAD_KNOWN, RG_DIFFERS and RG_LEARN, and at RG_KEEP of each launch.
extern const absl::string_view kCompareText, kUnchangedText, kForgetText, kDeclareKnownText,
    kLoadKnownText, kDiffersText, kLearnText, kKeepPartText, kKeepTilesText, kSkipUnchangedText,
    kSkipUnchangedBucketText, kTellUnchangedText, kForgetAndSkipText;
// One launch: what begins it. It ends with kRowsText and kPutText.
extern const absl::string_view kWholeListText;
// Buckets: the parts of the list; then what begins a bucket's launch with stretches of long buckets
// and without, and the launch of those; what all of these go on with; and how they end.
extern const absl::string_view kPartText, kFindText, kOwnBucketText, kLongText, kBoundsText,
    kSkipLongText, kGatherText, kLeaveText, kRowsText, kLongRowsText, kPutText;
// Digits: RG_READ, what reads a tile of the list, for the first pass and for the others, and
// RG_DIGITS_OF; the two launches of a pass; RG_STARTS of a single one; where each row begins in the
// sorted list, of several.
extern const absl::string_view kReadIndicesText, kReadListText, kDigitsOfText, kCountText,
    kPlaceText, kDigitStartsText, kStartsText, kStartsOfManyText;

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_SORT_SORT_TEXT_H_
