#include "fusion/ops/sort_indices/index_sort.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "fusion/kernel/ir/scale.h"

namespace retrograd {
namespace {

// A block has a thread for each digit, bucket or row of a bucket. Its shared memory is at most the
// 48 KiB that each device's blocks have.
constexpr int64_t kThreads = 512;
constexpr int kMostDigitBits = 9, kMostBitsOfMany = 8;  // of many indices: where the most are held
// Indices of a thread at once: few, so that many units of the GPU write; more where there are too
// many blocks.
constexpr int64_t kFewItems = 4, kItems = 8;

// Digits: blocks of a pass, each of which reads the counts of all.
constexpr int64_t kMostBlocks = 256;

// Buckets: their number, to begin with; then as many as give one a part of what a block holds, so
// that chance makes none of them long. All blocks of a long bucket's stretches read where the
// buckets begin in all parts, which bounds those.
constexpr int64_t kFewBuckets = 256, kMostBuckets = 512;
constexpr int64_t kUsualIndices = kFewItems * kThreads / 2;
// One launch: indices that a block holds, and those that all blocks go through.
constexpr int64_t kMostHeld = kItems * kThreads;
constexpr int64_t kMostVisits = int64_t{1} << 22;

int Bits(int64_t n) {
  int bits = 1;
  while ((n >> bits) != 0) ++bits;
  return bits;
}

// The fewest rows to a bucket that make no more than so many buckets.
void DivideRows(int64_t most_buckets, IndexSort* s) {
  s->row_bits = 0;
  while (CeilDiv(s->sorted.pairs(), s->bucket_rows()) > most_buckets) ++s->row_bits;
  s->buckets = CeilDiv(s->sorted.pairs(), s->bucket_rows());
}

std::optional<IndexSort> OneLaunch(const SortedIndices& sorted) {
  if (sorted.indices > kMostHeld) return std::nullopt;
  IndexSort s{.sorted = sorted, .way = SortWay::kOneLaunch, .threads = kThreads};
  s.items = std::max<int64_t>(CeilDiv(sorted.indices, kThreads), 1);
  DivideRows(kFewBuckets, &s);
  s.row_bits = std::min(s.row_bits, kMostDigitBits);
  s.buckets = CeilDiv(sorted.pairs(), s.bucket_rows());
  if (Product({s.buckets, s.part()}) > kMostVisits) return std::nullopt;
  return s;
}

std::optional<IndexSort> Buckets(const SortedIndices& sorted) {
  IndexSort s{.sorted = sorted, .way = SortWay::kBuckets, .threads = kThreads, .passes = 1};
  s.items = sorted.indices <= kFewItems * kThreads * kMostSortedParts ? kFewItems : kItems;
  s.parts = std::max<int64_t>(CeilDiv(sorted.indices, s.part()), 1);
  DivideRows(kFewBuckets, &s);
  if (s.row_bits > 0 && sorted.indices > s.buckets * kUsualIndices) DivideRows(kMostBuckets, &s);
  if (s.parts > kMostSortedParts || s.row_bits > kMostDigitBits ||
      sorted.indices > s.buckets * kUsualIndices) {
    return std::nullopt;
  }
  // Each long bucket has at most twice as many stretches as it would have full ones.
  s.stretches = 2 * sorted.indices / s.capacity();
  return s;
}

IndexSort Digits(const SortedIndices& sorted) {
  IndexSort s{.sorted = sorted, .way = SortWay::kDigits, .threads = kThreads};
  const int bits = Bits(sorted.rows);
  s.passes = static_cast<int>(CeilDiv(bits, kMostDigitBits));
  s.digit_bits = static_cast<int>(CeilDiv(bits, s.passes));
  const bool few = sorted.indices <= kFewItems * s.threads * kMostBlocks;
  s.items = few || s.digit_bits > kMostBitsOfMany ? kFewItems : kItems;
  const int64_t tiles = std::max<int64_t>(CeilDiv(sorted.indices, s.part()), 1);
  s.tiles = CeilDiv(tiles, kMostBlocks);
  s.blocks = CeilDiv(tiles, s.tiles);
  return s;
}

}  // namespace

absl::string_view Name(SortWay way) {
  switch (way) {
    case SortWay::kOneLaunch: return "one launch";
    case SortWay::kBuckets: return "buckets";
    case SortWay::kDigits: return "digits";
  }
  return "";
}

int IndexSort::launches() const {
  switch (way) {
    case SortWay::kOneLaunch: return 1;
    case SortWay::kBuckets: return stretches > 0 ? 3 : 2;
    case SortWay::kDigits: return passes == 1 && !kept ? 2 : 2 * passes + 1;
  }
  return 0;
}

int64_t IndexSort::most_blocks() const {
  switch (way) {
    case SortWay::kOneLaunch: return buckets;
    case SortWay::kBuckets: return std::max(parts, buckets + stretches);
    case SortWay::kDigits: return blocks;
  }
  return 0;
}

int64_t IndexSort::capacity() const { return threads * kFewItems; }

std::vector<IndexSort> IndexSortsFor(const SortedIndices& sorted, DType index_dtype) {
  std::vector<IndexSort> ways;
  for (const std::optional<IndexSort>& way : {OneLaunch(sorted), Buckets(sorted)}) {
    if (way.has_value()) ways.push_back(*way);
  }
  ways.push_back(Digits(sorted));
  for (IndexSort& way : ways) way.index_dtype = index_dtype;
  return ways;
}

IndexSort IndexSortFor(const SortedIndices& sorted, DType index_dtype) {
  return IndexSortsFor(sorted, index_dtype).front();
}

std::vector<IndexSort> TogetherOf(std::vector<IndexSort> alone) {
  int64_t visits = 0;
  std::vector<IndexSort> by_buckets;
  for (const IndexSort& sort : alone) {
    if (sort.way != SortWay::kOneLaunch) return alone;
    visits += Product({sort.buckets, sort.part()});
    std::optional<IndexSort> other = Buckets(sort.sorted);
    if (!other) return alone;
    other->index_dtype = sort.index_dtype;
    other->index_offset = sort.index_offset;
    by_buckets.push_back(*other);
  }
  return visits > kMostVisits ? by_buckets : alone;
}

std::string Describe(const IndexSort& s) {
  const int launches = s.launches();
  const std::string start = absl::StrCat(launches, launches == 1 ? " launch, " : " launches, ");
  if (s.way == SortWay::kDigits) {
    return absl::StrCat(start, s.passes, s.passes == 1 ? " digit" : " digits");
  }
  return absl::StrCat(start, s.buckets, " buckets of ", s.bucket_rows(), " rows");
}

IndexSort IndexSortOf(const Call& call) {
  const CallTensor& index = call.operands[0];
  IndexSort sort = IndexSortFor(
      {.rows = call.attributes.Int("rows"), .indices = Elements(index.shape)}, index.dtype);
  sort.index_offset = index.offset;
  return sort;
}

int64_t KeptBytes(const IndexSort& s) {
  if (s.launches() == 1 || (s.way == SortWay::kBuckets && s.stretches == 0)) return 0;
  IndexSort kept = s;
  kept.kept = true;
  return 4 * (SortScratchOf(kept).words + s.sorted.elements());
}

SortScratch SortScratchOf(const IndexSort& s) {
  SortScratch scratch;
  const auto place = [&](int64_t words) {
    const int64_t at = scratch.words;
    scratch.words += CeilDiv(words, 4) * 4;
    return at;
  };
  if (s.kept) {
    scratch.changed = place(kMostChanges);
    scratch.known = place(s.sorted.indices);
    scratch.known_end = scratch.words;
    scratch.again = place(1);
  }
  if (s.way == SortWay::kBuckets) {
    scratch.list[0] = place(s.sorted.indices);
    scratch.begins = place(s.parts * (s.buckets + 1));
    scratch.longest = place(s.parts);
    scratch.jobs = place(s.stretches * 4);
    scratch.rows = place(s.stretches * s.bucket_rows());
  }
  if (s.way == SortWay::kDigits) {
    for (int l = 0; l < 2 && l + 1 < s.passes; ++l) scratch.list[l] = place(2 * s.sorted.indices);
    scratch.first_counts = scratch.counts = place(s.blocks * s.digits());
    if (s.kept && s.passes > 1) scratch.counts = place(s.blocks * s.digits());
  }
  return scratch;
}

}  // namespace retrograd
