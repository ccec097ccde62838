// How a list of indices is sorted: equal ones stay in order, so that what is added up by them is
// added up in one order. Three ways, all without atomics:
//   one launch  each block owns a bucket, some neighbouring rows, and goes through the whole list
//               for the indices that name them: short lists.
//   buckets     each block sorts a part of the list by buckets; then a block for each bucket
//               gathers its indices from all parts and sorts them by rows. What has more indices
//               than a block holds is counted there in stretches, by blocks of its own, which a
//               third launch places. Each launch has as many blocks as the sizes say.
//   digits      a stable sort by one digit after the other, the lowest first. A pass is two
//   launches:
//               each block counts the digits of its own part of the list, then puts its part where
//               the counts of all blocks say.
#ifndef RETROGRAD_FUSION_OPS_SORT_INDICES_INDEX_SORT_H_
#define RETROGRAD_FUSION_OPS_SORT_INDICES_INDEX_SORT_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "fusion/plan/call.h"
#include "graph/ir/sorted_indices.h"

namespace retrograd {

enum class SortWay : uint8_t { kOneLaunch, kBuckets, kDigits };
absl::string_view Name(SortWay way);  // "one launch", "buckets", "digits"

// Parts of the list that buckets are gathered from, at most.
inline constexpr int64_t kMostSortedParts = 128;
// Blocks of the first launch of a kept list, at most.
inline constexpr int64_t kMostChanges = 256;

struct IndexSort {
  SortedIndices sorted;
  DType index_dtype = DType::kInt64;
  int64_t index_offset = 0;  // elements, of the first index
  SortWay way = SortWay::kDigits;
  int64_t threads = 0;  // of a block
  int64_t items = 0;    // indices of a thread at once
  // one launch, buckets: a bucket has 2^row_bits rows.
  int row_bits = 0;
  int64_t buckets = 0;
  // buckets: blocks that sort a part of the list, and those that sort a stretch of a long bucket.
  int64_t parts = 0, stretches = 0;
  // Two launches each that go through the list: of buckets one.
  int passes = 0;
  // Whether list and scratch memory stay as they are until the next sort of the same call. The
  // first launch then compares the indices with those of the last sort, and if none has changed,
  // nothing else is done.
  bool kept = false;
  // digits: bits of a digit; blocks of a launch, tiles of threads * items of each.
  int digit_bits = 0;
  int64_t blocks = 0, tiles = 0;

  int64_t digits() const { return int64_t{1} << digit_bits; }
  int64_t bucket_rows() const { return int64_t{1} << row_bits; }
  int64_t part() const { return threads * items; }  // indices of a part
  int launches() const;
  int64_t most_blocks() const;  // of a launch
  // Indices that a block of the second launch of buckets holds: a bucket of more is long.
  int64_t capacity() const;
};

// The way for lists of such sizes, whatever the indices are.
IndexSort IndexSortFor(const SortedIndices& sorted, DType index_dtype);
// All ways that take such lists, the one above first.
std::vector<IndexSort> IndexSortsFor(const SortedIndices& sorted, DType index_dtype);
// The ways of lists that share launches, of which these are the ways of each alone: those of one
// launch go by buckets, if all can, where all blocks together would go through too much.
std::vector<IndexSort> TogetherOf(std::vector<IndexSort> alone);
// "3 launches, 313 buckets of 64 rows"
std::string Describe(const IndexSort& sort);
// Of a call of sort_indices.
IndexSort IndexSortOf(const Call& call);

// What a call that keeps its list holds in all; 0: such lists are not kept. One launch is as soon
// done as what would find that there is nothing to do.
int64_t KeptBytes(const IndexSort& sort);

// Scratch memory of a sort, in words of 32 bits; each part begins at a multiple of four.
struct SortScratch {
  // Of a kept list; zero before the first sort. Words that are not 0 where a block of the first
  // launch has found other indices than before, which the last launch clears, so that a sort that
  // was broken off is made again. And of each index the row that it names, plus one.
  int64_t changed = 0, known = 0, known_end = 0;
  int64_t again = 0;  // digits: not 0 where the last launch has work; written in each sort
  // digits: the list behind each pass but the last, in turns, in pairs as SortedIndices has them.
  // buckets: in list[0] one word an index, by part and bucket: (row in the bucket) * 2^16 + place
  // in the part.
  int64_t list[2] = {0, 0};
  // digits: [blocks][digits] of each block's part, of the first pass and of the others; a kept
  // list's first pass leaves out blocks whose indices have not changed.
  int64_t first_counts = 0, counts = 0;
  // buckets: where each bucket begins in each part [parts][buckets + 1]; the most indices of a
  // bucket in each part; of each stretch its bucket, its place among the stretches of the bucket
  // and their number, or -1; and how many of its indices name each row [stretches][bucket_rows].
  int64_t begins = 0, longest = 0, jobs = 0, rows = 0;
  int64_t words = 0;  // in all
};
SortScratch SortScratchOf(const IndexSort& sort);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_OPS_SORT_INDICES_INDEX_SORT_H_
