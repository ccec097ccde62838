#include "fusion/ops/sort_indices/index_sort.h"

#include <algorithm>

#include "fusion/kernel/ir/scale.h"

namespace retrograd {
namespace {

// Counters of a block, one for each of its rows and threads, or digits and warps: 32 KiB of the 48
// that each device's blocks have at least.
constexpr int64_t kOwnCounters = 8192;
constexpr int kMostDigitBits = 9;
constexpr int64_t kDigitThreads = 512;
// Indices of a thread: few, so that many units of the GPU write; more where there are too many
// blocks.
constexpr int64_t kFewItems = 4, kItems = 8;
// Blocks of a pass: each reads the counts of all.
constexpr int64_t kMostBlocks = 256;

// Lists that blocks which own rows go through faster than a sort by digits takes: indices, and
// those times blocks (estimates for one H200, by sorts of 98304 indices).
constexpr int64_t kMostOwned = int64_t{1} << 15, kMostVisits = int64_t{1} << 24;
constexpr int64_t kFewIndices = 8192;  // 128 threads go through so many
constexpr int64_t kPacksAtOnce = 4;

int Bits(int64_t n) {
  int bits = 1;
  while ((n >> bits) != 0) ++bits;
  return bits;
}

IndexSort Owners(const SortedIndices& sorted) {
  IndexSort s{.sorted = sorted, .owners = true};
  s.threads = sorted.indices <= kFewIndices ? 128 : 512;
  s.own_rows = kOwnCounters / s.threads;
  s.blocks = CeilDiv(sorted.pairs(), s.own_rows);
  const int64_t packs = std::max<int64_t>(CeilDiv(sorted.indices, 4 * s.threads), 1);
  s.packs_at_once = std::min(packs, kPacksAtOnce);
  s.packs = CeilDiv(packs, s.packs_at_once) * s.packs_at_once;
  return s;
}

IndexSort Digits(const SortedIndices& sorted) {
  IndexSort s{.sorted = sorted, .threads = kDigitThreads};
  const int bits = Bits(sorted.rows);
  s.passes = static_cast<int>(CeilDiv(bits, kMostDigitBits));
  s.digit_bits = static_cast<int>(CeilDiv(bits, s.passes));
  s.items = sorted.indices <= kFewItems * s.threads * kMostBlocks ? kFewItems : kItems;
  const int64_t tiles = std::max<int64_t>(CeilDiv(sorted.indices, s.threads * s.items), 1);
  s.tiles = CeilDiv(tiles, kMostBlocks);
  s.blocks = CeilDiv(tiles, s.tiles);
  return s;
}

}  // namespace

IndexSort IndexSortFor(const SortedIndices& sorted, DType index_dtype) {
  IndexSort owners = Owners(sorted);
  const bool few = sorted.indices <= kMostOwned &&
                   Product({owners.blocks, std::max<int64_t>(sorted.indices, 1)}) <= kMostVisits;
  IndexSort s = few ? owners : Digits(sorted);
  s.index_dtype = index_dtype;
  return s;
}

IndexSort IndexSortOf(const Call& call) {
  const CallTensor& index = call.operands[0];
  IndexSort sort = IndexSortFor(
      {.rows = call.attributes.Int("rows"), .indices = Elements(index.shape)}, index.dtype);
  sort.index_offset = index.offset;
  return sort;
}

SortScratch SortScratchOf(const IndexSort& s) {
  SortScratch scratch;
  const auto place = [&](int64_t words) {
    const int64_t at = scratch.words;
    scratch.words += CeilDiv(words, 4) * 4;
    return at;
  };
  if (s.owners) {
    scratch.list[0] = place(4 * s.packs * s.threads);
    return scratch;
  }
  for (int l = 0; l < 2 && l + 1 < s.passes; ++l) scratch.list[l] = place(2 * s.sorted.indices);
  scratch.counts = place(s.blocks * s.digits());
  return scratch;
}

}  // namespace retrograd
