#include "codegen/sort/sort_text.h"

namespace retrograd {

// --- steps of several launches ------------------------------------------------------------------

// `ranks`: of a warp's indices with a thread's digit, how many come before. Digits below 0 are no
// indices. A warp of 32 threads takes 32 neighbours at once and counts in its row of a table
// [warp][digit]. `same`: which of the 32 have the thread's digit; the first of them counts all.
const absl::string_view kMatchText = R"(
  unsigned same[kItems];
RG_UNROLL
  for (int i = 0; i < kItems; ++i) {
    same[i] = 0;
    if (i < items) {
      same[i] = RG_BALLOT(digits[i] >= 0);
RG_UNROLL
      for (int bit = 0; bit < kDigitBits; ++bit) {
        const unsigned ones = RG_BALLOT(digits[i] >> bit & 1);
        same[i] &= (digits[i] >> bit & 1) != 0 ? ones : ~ones;
      }
    }
  }
RG_UNROLL
  for (int i = 0; i < kItems; ++i) {
    if (i < items) {
      const unsigned before_me = same[i] & ((1u << lane) - 1);
      const int at = warp * kDigits + digits[i];
      const int before = digits[i] >= 0 ? static_cast<int>(counts[at]) : 0;
      RG_WARP_BARRIER();
      ranks[i] = before + RG_POPCOUNT(before_me);
      if (digits[i] >= 0 && before_me == 0) {
        counts[at] = static_cast<unsigned short>(before + RG_POPCOUNT(same[i]));
      }
      RG_WARP_BARRIER();
    }
  }
)";

// A thread for each digit: `total`, of all warps; the table then has what earlier warps counted.
const absl::string_view kColumnText = R"(
  if (RG_THREAD < kDigits) {
    total = 0;
RG_UNROLL
    for (int v = 0; v < kWarps; ++v) {
      const int here = counts[v * kDigits + RG_THREAD];
      counts[v * kDigits + RG_THREAD] = static_cast<unsigned short>(total);
      total += here;
    }
  }
)";

// `first`: the sum of `total` over the threads before. `sums` gets that of each warp.
const absl::string_view kScanText = R"(
  {
    int from_here = total;
RG_UNROLL
    for (int step = 1; step < 32; step *= 2) {
      const int more = RG_SHUFFLE_DOWN(from_here, step);
      if (lane + step < 32) from_here += more;
    }
    if (lane == 0) sums[warp] = from_here;
    RG_BARRIER();
    first = -from_here;
RG_UNROLL
    for (int v = 0; v < kWarps; ++v) first += v <= warp ? static_cast<int>(sums[v]) : 0;
  }
)";

// `all`, `before`: of digit RG_THREAD % kDigits, the sums of `counters` counts [counter][digit] in
// w from `counts_at` on, and of the first `counters_before` of them. Threads share the counters.
const absl::string_view kCountersText = R"(
  {
    constexpr int kGroups = kThreads / kDigits;
    const int digit = RG_THREAD % kDigits, group = RG_THREAD / kDigits;
    for (int c = group; c < counters; c += kGroups * kCountsAtOnce) {
      int count[kCountsAtOnce];
RG_UNROLL
      for (int u = 0; u < kCountsAtOnce; ++u) {
        const int at = c + u * kGroups;
        count[u] = at < counters ? rg_load(w, counts_at + at * kDigits + digit) : 0;
      }
RG_UNROLL
      for (int u = 0; u < kCountsAtOnce; ++u) {
        all += count[u];
        before += c + u * kGroups < counters_before ? count[u] : 0;
      }
    }
    grouped[RG_THREAD] = all;
    grouped_before[RG_THREAD] = before;
    RG_BARRIER();
    all = before = 0;
    for (int g = 0; g < kGroups; ++g) {
      all += grouped[g * kDigits + digit];
      before += grouped_before[g * kDigits + digit];
    }
  }
)";

// --- one launch ---------------------------------------------------------------------------------

// The whole list: which of its indices name rows of the block's bucket, and how many rows before.
const absl::string_view kWholeListText = R"(
  const int warp = RG_THREAD / 32, lane = RG_THREAD % 32;
  for (int n = RG_THREAD; n < kWarps * kDigits; n += kThreads) counts[n] = 0;
  const int bucket = RG_BLOCK, items = kItems;
  int digits[kItems], orders[kItems], ranks[kItems];
  int64_t rows[kItems];
RG_UNROLL
  for (int i = 0; i < kItems; ++i) {
    orders[i] = (warp * kItems + i) * 32 + lane;
    rows[i] = orders[i] < kIndices ? rg_load(index, kIndexFirst + orders[i]) : 0;
  }
  int base = 0;
RG_UNROLL
  for (int i = 0; i < kItems; ++i) {
    const int64_t row = rows[i] < 0 ? rows[i] + kRows : rows[i];
    const int own = (row < 0 || row >= kRows ? kRows : static_cast<int>(row)) - bucket * kDigits;
    digits[i] = orders[i] < kIndices && own >= 0 && own < kDigits ? own : -1;
    base += orders[i] < kIndices && own < 0 ? 1 : 0;
  }
RG_UNROLL
  for (int step = 16; step > 0; step /= 2) base += RG_SHUFFLE_XOR(base, step);
  if (lane == 0) bases[warp] = base;
  RG_BARRIER();
RG_MATCH
  RG_BARRIER();
  int total = 0, first = 0;
RG_COLUMN
RG_SCAN
  base = 0;
  int held_here = 0;
RG_UNROLL
  for (int v = 0; v < kWarps; ++v) {
    base += bases[v];
    held_here += sums[v];
  }
)";

// --- buckets ------------------------------------------------------------------------------------

// A part of the list, sorted by buckets, and where each bucket begins in it.
const absl::string_view kPartText = R"(
  const int warp = RG_THREAD / 32, lane = RG_THREAD % 32;
  for (int n = RG_THREAD; n < kWarps * kDigits; n += kThreads) counts[n] = 0;
  const int begin = RG_BLOCK * kPart, items = kItems;
  int digits[kItems], words[kItems], ranks[kItems];
  int64_t rows[kItems];
RG_DECLARE_KNOWN
RG_UNROLL
  for (int i = 0; i < kItems; ++i) {
    words[i] = (warp * kItems + i) * 32 + lane;
    const bool is_index = begin + words[i] < kIndices;
    rows[i] = is_index ? rg_load(index, kIndexFirst + begin + words[i]) : 0;
RG_LOAD_KNOWN
  }
RG_UNROLL
  for (int i = 0; i < kItems; ++i) {
    const int64_t row = rows[i] < 0 ? rows[i] + kRows : rows[i];
    const int key = row < 0 || row >= kRows ? kRows : static_cast<int>(row);
RG_DIFFERS
    digits[i] = begin + words[i] < kIndices ? key >> kRowBits : -1;
    words[i] |= (key & ((1 << kRowBits) - 1)) << 16;
  }
RG_KEEP
  RG_BARRIER();
RG_MATCH
  RG_BARRIER();
  int total = 0, first = 0;
RG_COLUMN
  int most = total;
RG_UNROLL
  for (int step = 16; step > 0; step /= 2) most = rg_max(most, RG_SHUFFLE_XOR(most, step));
  if (lane == 0) mosts[warp] = most;
RG_SCAN
  if (RG_THREAD < kDigits) firsts[RG_THREAD] = first;
  const int begins = kBegins + RG_BLOCK * (kBuckets + 1);
  if (RG_THREAD < kBuckets) rg_store(w, begins + RG_THREAD, first);
  if (RG_THREAD == kThreads - 1) rg_store(w, begins + kBuckets, first + total);
  if (RG_THREAD == 0) {
RG_UNROLL
    for (int v = 1; v < kWarps; ++v) most = rg_max(most, static_cast<int>(mosts[v]));
    rg_store(w, kLongest + RG_BLOCK, most);
  }
  RG_BARRIER();
RG_UNROLL
  for (int i = 0; i < kItems; ++i) {
    if (digits[i] >= 0) {
      held[firsts[digits[i]] + counts[warp * kDigits + digits[i]] + ranks[i]] = words[i];
    }
  }
  RG_BARRIER();
  const int here = rg_min(kPart, kIndices - begin);
  for (int n = RG_THREAD; n < here; n += kThreads) {
    rg_store(w, kList + begin + n, static_cast<int>(held[n]));
  }
)";

// The bucket of the block, or the stretch of a long one. No bucket is long where the longest parts
// of buckets are no more together than a block holds. Else the blocks of stretches add up where
// each bucket begins, and number the stretches of long ones.
const absl::string_view kFindText = R"(
RG_KEEP
  const int warp = RG_THREAD / 32, lane = RG_THREAD % 32;
  for (int n = RG_THREAD; n < kWarps * kDigits; n += kThreads) counts[n] = 0;
  int bucket = RG_BLOCK, stretch = 0;
  if (RG_BLOCK >= kBuckets) {
    const int at = kJobs + 4 * (RG_BLOCK - kBuckets);
    int job[4] = {-1, 0, 0, 0};
    int total = RG_THREAD < kParts ? rg_load(w, kLongest + RG_THREAD) : 0, first = 0;
RG_SCAN
    if (RG_THREAD == kThreads - 1) found[0] = first + total;
    RG_BARRIER();
    if (found[0] <= kHeld) {
      if (RG_THREAD == 0) rg_store_vec<4>(w, at, job);
      return;
    }
    for (int b = RG_THREAD; b <= kBuckets; b += kThreads) {
      int sum = 0;
      for (int part = 0; part < kParts; part += kCountsAtOnce) {
        int count[kCountsAtOnce];
RG_UNROLL
        for (int u = 0; u < kCountsAtOnce; ++u) {
          count[u] =
              part + u < kParts ? rg_load(w, kBegins + (part + u) * (kBuckets + 1) + b) : 0;
        }
RG_UNROLL
        for (int u = 0; u < kCountsAtOnce; ++u) sum += count[u];
      }
      begins[b] = sum;
    }
    if (RG_THREAD == 0) found[1] = -1;
    RG_BARRIER();
    total = 0;
    if (RG_THREAD < kBuckets) {
      const int all = begins[RG_THREAD + 1] - begins[RG_THREAD];
      if (all > kHeld) total = (all + kHeld - 1) / kHeld;
    }
RG_SCAN
    const int mine = RG_BLOCK - kBuckets - first;
    if (mine >= 0 && mine < total) {
      found[1] = RG_THREAD;
      found[2] = mine;
      found[3] = total;
    }
    RG_BARRIER();
    bucket = found[1];
    if (bucket >= 0) {
      stretch = found[2];
      job[0] = bucket;
      job[1] = stretch;
      job[2] = found[3];
    }
    if (RG_THREAD == 0) rg_store_vec<4>(w, at, job);
    if (bucket < 0) return;
  }
)";

// The stretch of a long bucket that the launch before has counted.
const absl::string_view kLongText = R"(
  int job[4];
  rg_load_vec<4>(w, kJobs + 4 * RG_BLOCK, job);
  const int bucket = job[0], stretch = job[1];
RG_KEEP
  if (bucket < 0) return;
  const int warp = RG_THREAD / 32, lane = RG_THREAD % 32;
  for (int n = RG_THREAD; n < kWarps * kDigits; n += kThreads) counts[n] = 0;
)";

// Without stretches no bucket is long.
const absl::string_view kOwnBucketText = R"(
  const int warp = RG_THREAD / 32, lane = RG_THREAD % 32;
  for (int n = RG_THREAD; n < kWarps * kDigits; n += kThreads) counts[n] = 0;
  const int bucket = RG_BLOCK, stretch = 0;
)";

// Where the bucket begins in each part: what is before it in all is `base`. Its indices are
// numbered part by part, `offsets` says from where on; `places` leads from such a number into the
// list.
const absl::string_view kBoundsText = R"(
  int base = 0, length = 0, total = 0, first = 0;
  if (RG_THREAD < kParts) {
    const int at = kBegins + RG_THREAD * (kBuckets + 1) + bucket;
    base = rg_load(w, at);
    length = rg_load(w, at + 1) - base;
  }
  const int place = RG_THREAD * kPart + base;
RG_UNROLL
  for (int step = 16; step > 0; step /= 2) base += RG_SHUFFLE_XOR(base, step);
  if (lane == 0) bases[warp] = base;
  total = length;
RG_SCAN
  base = 0;
  int all = 0;
RG_UNROLL
  for (int v = 0; v < kWarps; ++v) {
    base += bases[v];
    all += sums[v];
  }
  if (RG_THREAD < kParts) {
    offsets[RG_THREAD] = first;
    places[RG_THREAD] = place - first;
  }
)";
const absl::string_view kSkipLongText = R"(
  if (RG_BLOCK < kBuckets && all > kHeld) return;
)";

// The indices of the stretch, in order. A thread looks for the part of each.
const absl::string_view kGatherText = R"(
  RG_BARRIER();
  const int begin = stretch * kHeld, end = rg_min(all, begin + kHeld);
  const int held_here = end - begin, items = (held_here + kThreads - 1) / kThreads;
  int digits[kItems], orders[kItems], ranks[kItems], part[kItems];
  const int number = begin + warp * items * 32 + lane;
RG_UNROLL
  for (int i = 0; i < kItems; ++i) part[i] = 0;
  for (int step = kSearch; step > 0; step /= 2) {
RG_UNROLL
    for (int i = 0; i < kItems; ++i) {
      const int to = part[i] + step;
      if (to < kParts && offsets[to] <= number + i * 32) part[i] = to;
    }
  }
  int words[kItems];
RG_UNROLL
  for (int i = 0; i < kItems; ++i) {
    const bool is_index = i < items && number + i * 32 < end;
    words[i] = is_index ? rg_load(w, kList + places[part[i]] + number + i * 32) : 0;
  }
RG_UNROLL
  for (int i = 0; i < kItems; ++i) {
    digits[i] = i < items && number + i * 32 < end ? words[i] >> 16 : -1;
    orders[i] = part[i] * kPart + (words[i] & 0xffff);
  }
RG_MATCH
  RG_BARRIER();
  total = first = 0;
RG_COLUMN
)";

// A stretch of a long bucket leaves its counts to the next launch.
const absl::string_view kLeaveText = R"(
  if (RG_BLOCK >= kBuckets) {
    if (RG_THREAD < kDigits) {
      rg_store(w, kRowsAt + (RG_BLOCK - kBuckets) * kDigits + RG_THREAD, total);
    }
    return;
  }
)";

// --- the end of a bucket's launches -------------------------------------------------------------

// The block has all of its bucket.
const absl::string_view kRowsText = R"(
  if (RG_THREAD < kDigits) {
    firsts[RG_THREAD] = first;
    shifts[RG_THREAD] = base;
    const int row = bucket * kDigits + RG_THREAD;
    if (row < kPairs) rg_store(sorted, kStarts + row, base + first);
  }
)";

// It has a stretch: of a row, the indices of all stretches lie together.
const absl::string_view kLongRowsText = R"(
  if (RG_THREAD < kDigits) firsts[RG_THREAD] = first;
  const int shift = -first;
  int all_of_row = 0, before_of_row = 0;
  {
    const int counters = job[2], counters_before = stretch;
    const int counts_at = kRowsAt + (RG_BLOCK - stretch) * kDigits;
    int all = 0, before = 0;
RG_COUNTERS
    all_of_row = all;
    before_of_row = before;
  }
  total = RG_THREAD < kDigits ? all_of_row : 0;
RG_SCAN
  if (RG_THREAD < kDigits) {
    shifts[RG_THREAD] = base + first + before_of_row + shift;
    const int row = bucket * kDigits + RG_THREAD;
    if (stretch == 0 && row < kPairs) rg_store(sorted, kStarts + row, base + first);
  }
)";

// The indices are put in order in shared memory, so that neighbours are stored together.
const absl::string_view kPutText = R"(
  RG_BARRIER();
RG_UNROLL
  for (int i = 0; i < kItems; ++i) {
    if (i < items && digits[i] >= 0) {
      const int to = firsts[digits[i]] + counts[warp * kDigits + digits[i]] + ranks[i];
      held[to] = digits[i] << 20 | orders[i];
    }
  }
  RG_BARRIER();
  for (int n = RG_THREAD; n < held_here; n += kThreads) {
    const int word = held[n];
    const int pair[2] = {bucket * kDigits + (word >> 20), word & 0xfffff};
    rg_store_vec<2>(sorted, kPairs + 2 * (shifts[word >> 20] + n), pair);
  }
)";

}  // namespace retrograd
