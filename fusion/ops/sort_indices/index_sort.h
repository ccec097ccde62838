// How a list of indices is sorted: equal ones stay in order, so that what is added up by them is
// added up in one order. Two ways, both without atomics:
//   owners  each block owns a few rows and goes through all indices, for those that name its rows.
//           Two launches; for lists that so many blocks go through in no time.
//   digits  a stable sort by one digit after the other, the lowest first. A pass is two launches:
//           each block counts the digits of its own part of the list, then puts its part where the
//           counts of all blocks say.
#ifndef RETROGRAD_FUSION_OPS_SORT_INDICES_INDEX_SORT_H_
#define RETROGRAD_FUSION_OPS_SORT_INDICES_INDEX_SORT_H_

#include "fusion/plan/call.h"
#include "graph/ir/sorted_indices.h"

namespace retrograd {

struct IndexSort {
  SortedIndices sorted;
  DType index_dtype = DType::kInt64;
  int64_t index_offset = 0;  // elements, of the first index
  bool owners = false;
  int64_t threads = 0;  // of a block that places indices
  int64_t blocks = 0;   // of such a launch
  // owners: rows of a block; packs of four indices that a thread goes through, which follow each
  // other in the list, and how many of them are loaded at once.
  int64_t own_rows = 0, packs = 0, packs_at_once = 0;
  // digits: passes, bits of a digit; indices of a thread at once, how often.
  int passes = 1, digit_bits = 0;
  int64_t items = 0, tiles = 0;

  int64_t digits() const { return int64_t{1} << digit_bits; }
  int launches() const { return owners ? 2 : 2 * passes + 1; }
};

// Of a call of sort_indices.
IndexSort IndexSortOf(const Call& call);
IndexSort IndexSortFor(const SortedIndices& sorted, DType index_dtype);

// Scratch memory of a sort, in words of 32 bits; each part begins at a multiple of four.
struct SortScratch {
  // digits: the list behind each pass but the last, in turns, in pairs as SortedIndices has them.
  // owners: the rows, dealt to the threads: [packs][threads][4], -1 behind the last index.
  int64_t list[2] = {0, 0};
  int64_t counts = 0;  // digits: [blocks][digits] of each block's part
  int64_t words = 0;   // in all
};
SortScratch SortScratchOf(const IndexSort& sort);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_OPS_SORT_INDICES_INDEX_SORT_H_
