// What launches of a kept list do beside sorting: compare, keep, skip and forget.
#include "codegen/sort/sort_text.h"

namespace retrograd {

// The first launch: whether any index of the block is another than in the last sort, where
// `differs` says so of the thread's. If not, its share of the scratch memory is as it should be.
const absl::string_view kCompareText = R"(
  const unsigned differing = RG_BALLOT(differs);
  if (lane == 0) changed[warp] = differing != 0 ? 1 : 0;
  RG_BARRIER();
  {
    int any = 0;
RG_UNROLL
    for (int v = 0; v < kWarps; ++v) any |= static_cast<int>(changed[v]);
    if (any == 0) return;
  }
  if (RG_THREAD == 0) rg_store(w, kChanged + RG_BLOCK, 1);
)";

// Of a part by buckets: what is known, and what differs from it.
const absl::string_view kDeclareKnownText = R"(
  int known[kItems];
  bool differs = false;
)";
const absl::string_view kLoadKnownText = R"(
    known[i] = is_index ? rg_load(w, kKnown + begin + words[i]) : 0;
)";
const absl::string_view kDiffersText = R"(
    differs = differs || (begin + words[i] < kIndices && known[i] != key + 1);
)";
const absl::string_view kKeepPartText = R"(
RG_COMPARE
RG_UNROLL
  for (int i = 0; i < kItems; ++i) {
    if (digits[i] >= 0) {
      const int key = digits[i] << kRowBits | words[i] >> 16;
      rg_store(w, kKnown + begin + (words[i] & 0xffff), key + 1);
    }
  }
)";

// The same of the tiles of a block of digits. A warp that has found another index looks for no
// more.
const absl::string_view kKeepTilesText = R"(
  bool differs = false;
  for (int tile = 0; tile < kTiles; ++tile) {
    const int from = ((RG_BLOCK * kTiles + tile) * kWarps + warp) * kItems * 32 + lane;
    int keys[kItems], known[kItems];
    [[maybe_unused]] int order[kItems];
RG_UNROLL
    for (int i = 0; i < kItems; ++i) {
      known[i] = from + i * 32 < kIndices ? rg_load(w, kKnown + from + i * 32) : 0;
    }
RG_READ
RG_UNROLL
    for (int i = 0; i < kItems; ++i) {
      differs = differs || (from + i * 32 < kIndices && known[i] != keys[i] + 1);
    }
    if (RG_BALLOT(differs) != 0) break;
  }
RG_COMPARE
)";
const absl::string_view kLearnText = R"(
RG_UNROLL
    for (int i = 0; i < kItems; ++i) {
      if (digits[i] >= 0) rg_store(w, kKnown + from + i * 32, keys[i] + 1);
    }
)";

// The launches behind it: `unchanged`, whether no block has found other indices. Each warp reads
// the words of all blocks.
const absl::string_view kUnchangedText = R"(
  bool unchanged = true;
RG_UNROLL
  for (int v = 0; v < kMostChanges / 128; ++v) {
    int found[4];
    rg_load_vec<4>(w, kChanged + v * 128 + RG_THREAD % 32 * 4, found);
    const unsigned any = RG_BALLOT((found[0] | found[1] | found[2] | found[3]) != 0);
    unchanged = unchanged && any == 0;
  }
)";
const absl::string_view kSkipUnchangedText = R"(
RG_UNCHANGED
  if (unchanged) return;
)";
// No stretch is left to the last launch.
const absl::string_view kSkipUnchangedBucketText = R"(
RG_UNCHANGED
  if (unchanged) {
    const int none[4] = {-1, 0, 0, 0};
    if (RG_BLOCK >= kBuckets && RG_THREAD == 0) {
      rg_store_vec<4>(w, kJobs + 4 * (RG_BLOCK - kBuckets), none);
    }
    return;
  }
)";
// Of the last launch but one of digits: the last one is told by a word that nobody writes
// meanwhile.
const absl::string_view kTellUnchangedText = R"(
RG_UNCHANGED
  if (RG_BLOCK == 0 && RG_THREAD == 0) rg_store(w, kAgain, unchanged ? 0 : 1);
  if (unchanged) return;
)";

// The last launch: nobody behind it reads the words of the blocks.
const absl::string_view kForgetText = R"(
  if (RG_BLOCK == 0) {
    for (int n = RG_THREAD; n < kMostChanges; n += kForgetThreads) rg_store(w, kChanged + n, 0);
  }
)";
const absl::string_view kForgetAndSkipText = R"(
RG_FORGET
  if (rg_load(w, kAgain) == 0) return;
)";

}  // namespace retrograd
