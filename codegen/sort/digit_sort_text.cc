// Launches of a sort by digits, and of where rows begin.
#include "codegen/sort/sort_text.h"

namespace retrograd {

// keys[kItems] and order[kItems], where they stood at first: of `from`, and of every 32nd position
// behind it.
const absl::string_view kReadIndicesText = R"(
    {
      int64_t rows[kItems];
RG_UNROLL
      for (int i = 0; i < kItems; ++i) {
        order[i] = from + i * 32;
        rows[i] = order[i] < kIndices ? rg_load(index, kIndexFirst + order[i]) : 0;
      }
RG_UNROLL
      for (int i = 0; i < kItems; ++i) {
        const int64_t row = rows[i] < 0 ? rows[i] + kRows : rows[i];
        keys[i] = row < 0 || row >= kRows ? kRows : static_cast<int>(row);
      }
    }
)";
const absl::string_view kReadListText = R"(
RG_UNROLL
    for (int i = 0; i < kItems; ++i) {
      int pair[2] = {0, 0};
      if (from + i * 32 < kIndices) rg_load_vec<2>(w, kFrom + 2 * (from + i * 32), pair);
      keys[i] = pair[0];
      order[i] = pair[1];
    }
)";
const absl::string_view kDigitsOfText = R"(
RG_UNROLL
    for (int i = 0; i < kItems; ++i) {
      digits[i] = from + i * 32 < kIndices ? keys[i] >> kShift & (kDigits - 1) : -1;
    }
)";

// How many indices of the block's part have each digit.
const absl::string_view kCountText = R"(
  const int warp = RG_THREAD / 32, lane = RG_THREAD % 32, items = kItems;
  for (int n = RG_THREAD; n < kWarps * kDigits; n += kThreads) counts[n] = 0;
RG_KEEP
  int all = 0;
  for (int tile = 0; tile < kTiles; ++tile) {
    const int from = ((RG_BLOCK * kTiles + tile) * kWarps + warp) * kItems * 32 + lane;
    int keys[kItems], digits[kItems];
    [[maybe_unused]] int order[kItems], ranks[kItems];
RG_READ
RG_DIGITS_OF
RG_LEARN
    RG_BARRIER();
RG_MATCH
    RG_BARRIER();
    if (RG_THREAD < kDigits) {
RG_UNROLL
      for (int v = 0; v < kWarps; ++v) {
        all += counts[v * kDigits + RG_THREAD];
        counts[v * kDigits + RG_THREAD] = 0;
      }
    }
  }
  if (RG_THREAD < kDigits) rg_store(w, kCounts + RG_BLOCK * kDigits + RG_THREAD, all);
)";

// The block's part of the list goes where its digits say, tile by tile, each put in order in shared
// memory first. `bases`: where the next index of each digit goes. The first tile is loaded before
// the counts are waited for.
const absl::string_view kPlaceText = R"(
  const int warp = RG_THREAD / 32, lane = RG_THREAD % 32, items = kItems;
RG_KEEP
  int keys[kItems], order[kItems], digits[kItems], ranks[kItems];
  int from = (RG_BLOCK * kTiles * kWarps + warp) * kItems * 32 + lane;
RG_READ
  {
    const int counters = kBlocks, counters_before = RG_BLOCK, counts_at = kCounts;
    int all = 0, before = 0, total = 0, first = 0;
RG_COUNTERS
    if (RG_THREAD < kDigits) total = all;
RG_SCAN
    if (RG_THREAD < kDigits) bases[RG_THREAD] = first + before;
RG_STARTS
  }
  for (int tile = 0; tile < kTiles; ++tile) {
    if (tile > 0) {
      from += kWarps * kItems * 32;
RG_READ
    }
RG_DIGITS_OF
    for (int n = RG_THREAD; n < kWarps * kDigits; n += kThreads) counts[n] = 0;
    RG_BARRIER();
RG_MATCH
    RG_BARRIER();
    int total = 0, first = 0;
RG_COLUMN
RG_SCAN
    if (RG_THREAD < kDigits) {
      firsts[RG_THREAD] = first;
      shifts[RG_THREAD] = bases[RG_THREAD] - first;
      bases[RG_THREAD] += total;
    }
    RG_BARRIER();
RG_UNROLL
    for (int i = 0; i < kItems; ++i) {
      if (digits[i] >= 0) {
        const int to = firsts[digits[i]] + counts[warp * kDigits + digits[i]] + ranks[i];
        held[to] = keys[i];
        held_orders[to] = order[i];
      }
    }
    RG_BARRIER();
    const int here = rg_min(kPart, kIndices - (RG_BLOCK * kTiles + tile) * kPart);
    for (int n = RG_THREAD; n < here; n += kThreads) {
      const int pair[2] = {held[n], held_orders[n]};
      const int to = shifts[pair[0] >> kShift & (kDigits - 1)] + n;
      rg_store_vec<2>(RG_TO, kTo + 2 * to, pair);
    }
  }
)";

// Of one pass the digits are rows.
const absl::string_view kDigitStartsText = R"(
    if (RG_BLOCK == 0 && RG_THREAD < kPairs && RG_THREAD < kDigits) {
      rg_store(sorted, kStarts + RG_THREAD, first);
    }
)";

// The first sorted position whose key is at least the thread's row. A turn asks kProbes positions
// at once, that many equal steps apart, and goes on between two of them.
const absl::string_view kStartsText = R"(
RG_KEEP
  const int row = RG_BLOCK * kStartsThreads + RG_THREAD;
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

// Of many rows a block has some neighbouring ones. One team of 32 threads looks for where the first
// of them begins and one for where those behind them do, each with 32 probes a turn. A thread then
// looks between these two, and behind what it found last: its rows have few positions between them
// where the list is short, so that it first asks whether its row begins among the next kNear.
const absl::string_view kStartsOfManyText = R"(
RG_KEEP
  const int lane = RG_THREAD % 32, team = RG_THREAD / 32;
  const int first_row = RG_BLOCK * kBlockRows;
  const int rows = rg_min(kBlockRows, kPairs - first_row);
  if (team < 2) {
    const int row = first_row + (team == 0 ? 0 : rows);
    int low = 0, high = kIndices;
    // Two teams of one warp go on together.
    for (;;) {
      const bool looks = low < high;
      int any = looks ? 1 : 0;
      if (RG_WARP > 32) any |= RG_SHUFFLE_XOR(any, 32);
      if (any == 0) break;
      const int step = (high - low) / 33 + 1;
      const int at = rg_min(low + (lane + 1) * step, high) - 1;
      const bool is_below = looks && rg_load(sorted, kPairs + 2 * at) < row;
      const int below = RG_POPCOUNT(RG_BALLOT(is_below));
      if (looks) {
        high = rg_min(high, low + (below + 1) * step - 1);
        low = rg_min(high, low + below * step);
      }
    }
    if (lane == 0) ends[team] = low;
  }
  RG_BARRIER();
  const int end = ends[1];
  int low = ends[0];
  for (int n = RG_THREAD; n < rows; n += kStartsThreads) {
    const int row = first_row + n, near = end - low > kNear ? low + kNear : end;
    int high = end;
    if (near > low) {
      if (rg_load(sorted, kPairs + 2 * (near - 1)) < row) {
        low = near;
      } else {
        high = near - 1;
      }
    }
    while (low < high) {
      const int middle = low + (high - low) / 2;
      if (rg_load(sorted, kPairs + 2 * middle) < row) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    rg_store(sorted, kStarts + row, low);
  }
)";

}  // namespace retrograd
