#include "codegen/sort/sort_text.h"

namespace retrograd {

// A thread deals a pack of four. What lies behind the last index is no index.
const absl::string_view kDealText = R"(
  const int pack = RG_BLOCK * kDealThreads + RG_THREAD;
  if (pack < kPacks * kThreads) {
    const int first = pack % kThreads * (kPacks * 4) + pack / kThreads * 4;
    int keys[4];
RG_UNROLL
    for (int n = 0; n < 4; ++n) {
      keys[n] = -1;
      if (first + n < kIndices) {
        int64_t row = rg_load(index, kIndexFirst + first + n);
        if (row < 0) row += kRows;
        keys[n] = row < 0 || row >= kRows ? kRows : static_cast<int>(row);
      }
    }
    rg_store_vec<4>(w, kList + pack * 4, keys);
  }
)";

// keys[]: the next packs of the thread's run.
const absl::string_view kReadPacksText = R"(
    int keys[kPacksAtOnce * 4];
RG_UNROLL
    for (int m = 0; m < kPacksAtOnce; ++m) {
      rg_load_vec<4>(w, kList + ((i + m) * kThreads + RG_THREAD) * 4, keys + m * 4);
    }
)";

// A block's threads, each over a run of the list, first count how many indices name each of the
// block's rows, in a table [row][thread], and how many lie below them. Sums over the table tell
// every thread where its indices go; the second time it puts them there.
const absl::string_view kOwnText = R"(
  const int low = RG_BLOCK * kOwnRows;
  for (int n = RG_THREAD; n < kOwnRows * kThreads; n += kThreads) counts[n + n / 32] = 0;
  int below = 0;
  for (int i = 0; i < kPacks; i += kPacksAtOnce) {
RG_READ
RG_UNROLL
    for (int m = 0; m < kPacksAtOnce * 4; ++m) {
      const int own = keys[m] - low;
      below += keys[m] >= 0 && own < 0 ? 1 : 0;
      const int at = own * kThreads + RG_THREAD;
      if (own >= 0 && own < kOwnRows) counts[at + at / 32] += 1;
    }
  }
  RG_BARRIER();
  int sum = 0;
  for (int n = RG_THREAD * kOwnRows; n < (RG_THREAD + 1) * kOwnRows; ++n) sum += counts[n + n / 32];
  sums[RG_THREAD] = sum;
  lower[RG_THREAD] = below;
  RG_BARRIER();
  for (int step = 1; step < kThreads; step *= 2) {
    const int more = RG_THREAD >= step ? static_cast<int>(sums[RG_THREAD - step]) : 0;
    const int more_lower = RG_THREAD >= step ? static_cast<int>(lower[RG_THREAD - step]) : 0;
    RG_BARRIER();
    sums[RG_THREAD] += more;
    lower[RG_THREAD] += more_lower;
    RG_BARRIER();
  }
  int place = lower[kThreads - 1] + sums[RG_THREAD] - sum;
  for (int n = RG_THREAD * kOwnRows; n < (RG_THREAD + 1) * kOwnRows; ++n) {
    const int here = counts[n + n / 32];
    counts[n + n / 32] = place;
    place += here;
  }
  RG_BARRIER();
  if (RG_THREAD < kOwnRows && low + RG_THREAD < kPairs) {
    const int at = RG_THREAD * kThreads;
    rg_store(sorted, kStarts + low + RG_THREAD, static_cast<int>(counts[at + at / 32]));
  }
  RG_BARRIER();
  for (int i = 0; i < kPacks; i += kPacksAtOnce) {
RG_READ
RG_UNROLL
    for (int m = 0; m < kPacksAtOnce * 4; ++m) {
      const int own = keys[m] - low;
      if (own >= 0 && own < kOwnRows) {
        const int at = own * kThreads + RG_THREAD;
        const int to = counts[at + at / 32];
        counts[at + at / 32] = to + 1;
        const int pair[2] = {keys[m], RG_THREAD * (kPacks * 4) + i * 4 + m};
        rg_store_vec<2>(sorted, kPairs + 2 * to, pair);
      }
    }
  }
)";

// keys[kItems] and order[kItems], where they stood at first: of `first`, and of every 32nd position
// behind it.
const absl::string_view kReadIndicesText = R"(
RG_UNROLL
    for (int i = 0; i < kItems; ++i) {
      keys[i] = 0;
      order[i] = first + i * 32;
      if (order[i] < kIndices) {
        int64_t row = rg_load(index, kIndexFirst + order[i]);
        if (row < 0) row += kRows;
        keys[i] = row < 0 || row >= kRows ? kRows : static_cast<int>(row);
      }
    }
)";
const absl::string_view kReadListText = R"(
RG_UNROLL
    for (int i = 0; i < kItems; ++i) {
      int pair[2] = {0, 0};
      if (first + i * 32 < kIndices) rg_load_vec<2>(w, kFrom + 2 * (first + i * 32), pair);
      keys[i] = pair[0];
      order[i] = pair[1];
    }
)";

// A warp of 32 threads goes through a run of the list, 32 neighbours at once, and counts in a table
// [warp][digit]. `same`: which of the 32 indices have a thread's digit; the first of them counts
// all.
const absl::string_view kMatchText = R"(
    unsigned same[kItems];
RG_UNROLL
    for (int i = 0; i < kItems; ++i) {
      const int digit = keys[i] >> kShift & (kDigits - 1);
      same[i] = RG_BALLOT(first + i * 32 < kIndices);
RG_UNROLL
      for (int bit = 0; bit < kDigitBits; ++bit) {
        const unsigned ones = RG_BALLOT(digit >> bit & 1);
        same[i] &= (digit >> bit & 1) != 0 ? ones : ~ones;
      }
    }
RG_UNROLL
    for (int i = 0; i < kItems; ++i) {
      const int at = warp * kDigits + (keys[i] >> kShift & (kDigits - 1));
      const unsigned before_me = same[i] & ((1u << lane) - 1);
      RG_BARRIER();
      const int before = counts[at];
      RG_BARRIER();
      ranks[i] = before + RG_POPCOUNT(before_me);
      if (first + i * 32 < kIndices && before_me == 0) counts[at] = before + RG_POPCOUNT(same[i]);
    }
    RG_BARRIER();
)";

// How many indices of the block's part have each digit.
const absl::string_view kCountText = R"(
  const int warp = RG_THREAD / 32, lane = RG_THREAD % 32;
  for (int n = RG_THREAD; n < kWarps * kDigits; n += kThreads) counts[n] = 0;
  for (int tile = 0; tile < kTiles; ++tile) {
    const int first = ((RG_BLOCK * kTiles + tile) * kWarps + warp) * kItems * 32 + lane;
    int keys[kItems];
    [[maybe_unused]] int order[kItems], ranks[kItems];
RG_READ
RG_MATCH
  }
  for (int digit = RG_THREAD; digit < kDigits; digit += kThreads) {
    int sum = 0;
RG_UNROLL
    for (int v = 0; v < kWarps; ++v) sum += counts[v * kDigits + digit];
    rg_store(w, kCounts + RG_BLOCK * kDigits + digit, sum);
  }
)";

// The block's part of the list goes where its digits say, tile by tile. `bases`: where the next
// index of each digit goes. The first tile is loaded before the counts are waited for.
const absl::string_view kPlaceText = R"(
  const int warp = RG_THREAD / 32, lane = RG_THREAD % 32;
  int keys[kItems], order[kItems], ranks[kItems];
  int first = (RG_BLOCK * kTiles * kWarps + warp) * kItems * 32 + lane;
RG_READ
  {
    constexpr int kParts = kThreads / kDigits;
    const int digit = RG_THREAD % kDigits, part = RG_THREAD / kDigits;
    int total = 0, before = 0;
    for (int b = part; b < kBlocks; b += kParts * kCountsAtOnce) {
      int count[kCountsAtOnce];
RG_UNROLL
      for (int u = 0; u < kCountsAtOnce; ++u) {
        const int block = b + u * kParts;
        count[u] = block < kBlocks ? rg_load(w, kCounts + block * kDigits + digit) : 0;
      }
RG_UNROLL
      for (int u = 0; u < kCountsAtOnce; ++u) {
        total += count[u];
        before += b + u * kParts < RG_BLOCK ? count[u] : 0;
      }
    }
    counts[RG_THREAD] = total;
    sums[RG_THREAD] = before;
    RG_BARRIER();
    total = before = 0;
    for (int p = 0; p < kParts; ++p) {
      total += counts[p * kDigits + digit];
      before += sums[p * kDigits + digit];
    }
    RG_BARRIER();
    sums[RG_THREAD] = total;
    RG_BARRIER();
    for (int step = 1; step < kDigits; step *= 2) {
      const int more = digit >= step ? static_cast<int>(sums[RG_THREAD - step]) : 0;
      RG_BARRIER();
      sums[RG_THREAD] += more;
      RG_BARRIER();
    }
    if (part == 0) bases[digit] = sums[RG_THREAD] - total + before;
  }
  for (int tile = 0; tile < kTiles; ++tile) {
    if (tile > 0) {
      first += kWarps * kItems * 32;
RG_READ
    }
    for (int n = RG_THREAD; n < kWarps * kDigits; n += kThreads) counts[n] = 0;
RG_MATCH
    for (int digit = RG_THREAD; digit < kDigits; digit += kThreads) {
      int place = bases[digit];
RG_UNROLL
      for (int v = 0; v < kWarps; ++v) {
        const int here = counts[v * kDigits + digit];
        counts[v * kDigits + digit] = place;
        place += here;
      }
      bases[digit] = place;
    }
    RG_BARRIER();
RG_UNROLL
    for (int i = 0; i < kItems; ++i) {
      if (first + i * 32 < kIndices) {
        const int to = counts[warp * kDigits + (keys[i] >> kShift & (kDigits - 1))] + ranks[i];
        const int pair[2] = {keys[i], order[i]};
        rg_store_vec<2>(RG_TO, kTo + 2 * to, pair);
      }
    }
    RG_BARRIER();
  }
)";

// The first sorted position whose key is at least the thread's row. A turn asks kProbes positions
// at once, that many equal steps apart, and goes on between two of them.
const absl::string_view kStartsText = R"(
  const int row = RG_BLOCK * kDealThreads + RG_THREAD;
  if (row < kPairs) {
    int low = 0, high = kIndices;
    while (low < high) {
      const int step = (high - low) / (kProbes + 1) + 1;
      int below = 0;
RG_UNROLL
      for (int u = 0; u < kProbes; ++u) {
        const int at = rg_min(low + (u + 1) * step, high) - 1;
        below += rg_load(sorted, kPairs + 2 * at) < row ? 1 : 0;
      }
      high = rg_min(high, low + (below + 1) * step - 1);
      low = rg_min(high, low + below * step);
    }
    rg_store(sorted, kStarts + row, low);
  }
)";

}  // namespace retrograd
