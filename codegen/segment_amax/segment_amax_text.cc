#include "codegen/segment_amax/segment_amax_text.h"

namespace retrograd {

// fold(from, to): the largest of these places in each of a thread's lanes, most[]; of the threads
// that hold it, those with `holds` are to store it. Loads past the last place are of it again,
// which changes nothing. What other threads found is compared one by one: all at once it takes the
// registers of two blocks. Blocks go from the last lanes to the first: what reads x next finds
// those in the cache.
const char kSegmentColumns[] = R"(
  const int pack = RG_THREAD % kPacks, down = RG_THREAD / kPacks;
  const int block = kBlocks - 1 - RG_BLOCK;
  const int part = block % kParts, slab = block / kParts % kSlabs;
  const int64_t batch = block / kParts / kSlabs;
  const int lane0 = (slab * kPacks + pack) * kV;
  const bool inside = lane0 < kLanes;
  const bool holds = inside && down == 0;
  const int64_t x0 = kXFirst + batch * kXBatch + (inside ? lane0 : 0) * kXAcross;
  compute_t most[kV];
  const auto fold = [&](int from, int to) {
    RG_UNROLL
    for (int v = 0; v < kV; ++v) most[v] = none;
    for (int place = from + down; place < to; place += kDown * kAtOnce) {
      rg_pack<storage_t, kV> packs[kAtOnce];
      RG_UNROLL
      for (int u = 0; u < kAtOnce; ++u) {
        rg_load_pack(x, x0 + rg_min(place + u * kDown, to - 1) * kXAlong, &packs[u]);
      }
      RG_UNROLL
      for (int u = 0; u < kAtOnce; ++u) {
        RG_UNROLL
        for (int v = 0; v < kV; ++v) {
          const compute_t element = rg_lane(packs[u], v);
          most[v] = rg_max(most[v], kMagnitude ? rg_abs(element) : element);
        }
      }
    }
    RG_BARRIER();
    RG_UNROLL
    for (int v = 0; v < kV; ++v) others[(down * kV + v) * kPacks + pack] = most[v];
    RG_BARRIER();
    if (down > 0) return;
    RG_UNROLL_1
    for (int d = 1; d < kDown; ++d) {
      RG_UNROLL
      for (int v = 0; v < kV; ++v) {
        most[v] = rg_max(most[v], static_cast<compute_t>(others[(d * kV + v) * kPacks + pack]));
      }
    }
  };
)";

// The same of a lane whose places are neighbours: loads are of whole packs, of which the first and
// the last may lie half in other groups.
const char kSegmentLines[] = R"(
  const int thread = RG_THREAD % kPacks;
  const int block = kBlocks - 1 - RG_BLOCK;
  const int part = block % kParts, slab = block / kParts % kSlabs;
  const int64_t batch = block / kParts / kSlabs;
  const int lane0 = slab * kDown + RG_THREAD / kPacks;
  const bool inside = lane0 < kLanes;
  const bool holds = inside && thread == 0;
  const int64_t x0 = kXFirst + batch * kXBatch + (inside ? lane0 : 0) * kXAcross;
  compute_t most[1];
  const auto fold = [&](int from, int to) {
    most[0] = none;
    const int last = from < to ? (to - 1) / kV : -1;
    for (int pack = from / kV + thread; pack <= last; pack += kPacks * kAtOnce) {
      rg_pack<storage_t, kV> packs[kAtOnce];
      RG_UNROLL
      for (int u = 0; u < kAtOnce; ++u) {
        rg_load_pack(x, x0 + rg_min(pack + u * kPacks, last) * kV, &packs[u]);
      }
      RG_UNROLL
      for (int u = 0; u < kAtOnce; ++u) {
        const int place = rg_min(pack + u * kPacks, last) * kV;
        RG_UNROLL
        for (int v = 0; v < kV; ++v) {
          const compute_t element = rg_lane(packs[u], v);
          const compute_t next = rg_max(most[0], kMagnitude ? rg_abs(element) : element);
          most[0] = place + v >= from && place + v < to ? next : most[0];
        }
      }
    }
    for (int n = kPacks / 2; n > 0; n /= 2) most[0] = rg_max(most[0], RG_SHUFFLE_XOR(most[0], n));
  };
)";

// Ends that leave the places, or lie before the one before, are taken for the nearest that does not
// (graph/ir/group_ends.h). All threads load the same ones, several at once.
const char kSegmentFind[] = R"(
  int group = 0, begin_place = 0, end_place = 0;
  bool found = false;
  for (int first = 0; first < kGroups && !found; first += kEndsAtOnce) {
    int next[kEndsAtOnce];
    RG_UNROLL
    for (int n = 0; n < kEndsAtOnce; ++n) {
      next[n] = rg_load(ends, kEndsFirst + rg_min(first + n, kGroups - 1));
    }
    RG_UNROLL
    for (int n = 0; n < kEndsAtOnce; ++n) {
      if (found || first + n >= kGroups) continue;
      group = first + n;
      begin_place = end_place;
      end_place = rg_min(rg_max(next[n], begin_place), kPlaces);
      found = kOfGroups ? group == part : end_place > part * kChunk;
    }
  }
)";

const char kSegmentChunk[] = R"(
  if (!found) return;
  const int chunk0 = part * kChunk, chunk1 = rg_min(chunk0 + kChunk, kPlaces);
  for (;;) {
    const int from = rg_max(begin_place, chunk0), to = rg_min(end_place, chunk1);
    if (from < to) {
      fold(from, to);
      const int64_t slot = batch * kSlots + part + group;
      if (holds) rg_store_vec<kHeld>(parts, slot * kLanes + lane0, most);
    }
    if (end_place >= chunk1 || ++group == kGroups) break;
    begin_place = end_place;
    end_place = rg_min(rg_max(rg_load(ends, kEndsFirst + group), begin_place), kPlaces);
  }
)";

// Of x itself, or of its parts, if there are some.
const char kSegmentGroup[] = R"(
  if (kChunk > 0 && begin_place < end_place) {
    fold(begin_place / kChunk + group, (end_place - 1) / kChunk + group + 1);
  } else {
    fold(begin_place, end_place);
  }
  if (holds) {
    RG_UNROLL
    for (int v = 0; v < kHeld; ++v) {
      rg_store(result, kDFirst + batch * kDBatch + group * kDAlong + (lane0 + v) * kDAcross, most[v]);
    }
  }
)";

const char kSegmentAllGroups[] = R"(
  int begin_place = 0;
  for (int group = 0; group < kGroups; ++group) {
    const int end_place = rg_min(rg_max(rg_load(ends, kEndsFirst + group), begin_place), kPlaces);
    fold(begin_place, end_place);
    if (holds) {
      rg_store(result, kDFirst + batch * kDBatch + group * kDAlong + lane0 * kDAcross, most[0]);
    }
    begin_place = end_place;
  }
)";

}  // namespace retrograd
