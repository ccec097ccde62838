#include "codegen/scatter_lines/emit_scatter_lines.h"

#include <algorithm>

#include "fusion/kernel/ir/scale.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

// What a team and a thread work on. Two teams of one warp go on together: they meet wherever either
// has work.
const char kBegin[] = R"(
  const int lane = RG_THREAD % 32, team = RG_THREAD / 32;
  const int of_line = team % kLineTeams;
  const int64_t piece = static_cast<int64_t>(RG_BLOCK) * kBlockLines + team / kLineTeams;
  const bool works = team < kBlockLines * kLineTeams && piece < kPieces;
  const int64_t line = works ? piece / kLineBlocks : 0;
  const int first_part = works ? static_cast<int>(piece % kLineBlocks) * kLineTeams : 0;
  const int first = (first_part + of_line) * kPart;
  const int size = works ? rg_max(rg_min(kPart, kExtent - first), 0) : 0;
  const int base = team * kPart;
  for (int i = lane; i < size; i += 32) sums[base + i] = 0;
  RG_WARP_BARRIER();
  const auto any_team = [&](bool own) {
    int any = own ? 1 : 0;
    if (RG_WARP > 32) any |= RG_SHUFFLE_XOR(any, 32);
    return any != 0;
  };
)";

// same_as(there, number, bits): of a team's threads that are there, which have the same number, of
// so many bits.
const char kSame[] = R"(
  const auto same_as = [&](bool there, int number, int bits) {
    unsigned same = RG_BALLOT(there);
    RG_UNROLL
    for (int bit = 0; bit < bits; ++bit) {
      const unsigned ones = RG_BALLOT(number >> bit & 1);
      same &= (number >> bit & 1) != 0 ? ones : ~ones;
    }
    return same;
  };
)";

// add(place, value): the terms of 32 threads, those of a place below 0 excepted. Each thread stores
// its number at its place for a moment. Where all find their own, no place has two threads. Where
// not, those that find the same number have the same place; the one that stands n-th among them
// adds in turn n, so that the terms of an element come in their order, and turns are as many as
// the most frequent place has threads.
const char kAdd[] = R"(
  const auto add = [&](int place, compute_t value) {
    const bool there = place >= 0;
    const compute_t sum = there ? sums[base + place] : compute_t(0);
    RG_WARP_BARRIER();
    RG_STORE_ANY(there, sums[base + place], static_cast<compute_t>(lane));
    const int found = there ? static_cast<int>(sums[base + place]) : lane;
    RG_WARP_BARRIER();
    const bool meet = any_team(RG_BALLOT(found != lane) != 0);
    int turn = there ? 0 : -1;
    if (meet) {
      const unsigned same = same_as(there, found, 5);
      if (there) turn = RG_POPCOUNT(same & ((1u << lane) - 1));
    }
    if (turn == 0) sums[base + place] = sum + value;
    for (int t = 1; meet && any_team(RG_BALLOT(turn >= t) != 0); ++t) {
      RG_WARP_BARRIER();
      if (turn == t) sums[base + place] += value;
    }
    RG_WARP_BARRIER();
  };
)";

// Of the index k of a line and of those behind it at distances of 32: the element that each names,
// counted from `from`, or -1 where it is not one of the next `of`; and the terms.
const char kLoad[] = R"(
  const int64_t index0 = kIndexFirst + line % kIndexLines * kCount;
  const int64_t src0 = kSrcFirst + line * kCount;
  int places[kLoads];
  compute_t values[kLoads];
  const auto load = [&](int k0, int from, int of) {
    RG_UNROLL
    for (int u = 0; u < kLoads; ++u) {
      const int k = k0 + u * 32, there = rg_min(k, kCount - 1);
      const int64_t named = rg_load(index, index0 + there);
      values[u] = rg_load(src, src0 + there);
      const int64_t place = (named < 0 ? named + kExtent : named) - from;
      places[u] = k < kCount && place >= 0 && place < of ? static_cast<int>(place) : -1;
    }
  };
)";

// Each team goes through all indices of its line.
const char kAlone[] = R"(
  for (int k0 = 0; k0 < kCount; k0 += 32 * kLoads) {
    load(k0 + lane, first, size);
    RG_UNROLL
    for (int u = 0; u < kLoads; ++u) add(places[u], values[u]);
  }
)";

// The teams of a line share out its indices, each so many at a time, and hand each term to the team
// whose part it is of. `counts` has a row for each team that hands over and a column for each that
// is given. In the queue stand the terms of the line's first part, then those of the second and so
// on, each in the order of the indices; `begins` says where what a team hands to another begins,
// and `ranges` where what a team is given begins and ends.
const char kTogether[] = R"(
  const int row = team * kLineTeams, rows = (team - of_line) * kLineTeams;
  const int queue = (team - of_line) * 32 * kLoads;
  const int covered = works ? rg_min(kLineTeams * kPart, kExtent - first_part * kPart) : 0;
  for (int k0 = 0; k0 < kCount; k0 += kLineTeams * 32 * kLoads) {
    if (lane < kLineTeams) counts[row + lane] = 0;
    load(k0 + of_line * 32 * kLoads + lane, first_part * kPart, covered);
    RG_WARP_BARRIER();
    int parts[kLoads], ranks[kLoads];
    RG_UNROLL
    for (int u = 0; u < kLoads; ++u) {
      const bool there = places[u] >= 0;
      parts[u] = there ? places[u] / kPart : 0;
      const unsigned same = same_as(there, parts[u], kLineTeamBits);
      const unsigned before = same & ((1u << lane) - 1);
      const int handed = counts[row + parts[u]];
      ranks[u] = handed + RG_POPCOUNT(before);
      RG_WARP_BARRIER();
      if (there && before == 0) counts[row + parts[u]] = handed + RG_POPCOUNT(same);
      RG_WARP_BARRIER();
    }
    RG_BARRIER();
    int total = 0, earlier = 0;
    if (works && lane < kLineTeams) {
      RG_UNROLL
      for (int by = 0; by < kLineTeams; ++by) {
        const int handed = counts[rows + by * kLineTeams + lane];
        total += handed;
        if (by < of_line) earlier += handed;
      }
    }
    int begin = 0, sum = total;
    RG_UNROLL
    for (int distance = 1; distance < kLineTeams; distance *= 2) {
      const int other = RG_SHUFFLE_XOR(sum, distance);
      if ((lane & distance) != 0) begin += other;
      sum += other;
    }
    if (lane < kLineTeams) begins[row + lane] = queue + begin + earlier;
    if (lane == of_line) {
      ranges[2 * team] = queue + begin;
      ranges[2 * team + 1] = queue + begin + total;
    }
    RG_WARP_BARRIER();
    RG_UNROLL
    for (int u = 0; u < kLoads; ++u) {
      if (places[u] < 0) continue;
      const int at = begins[row + parts[u]] + ranks[u];
      handed_places[at] = places[u] - parts[u] * kPart;
      handed_values[at] = values[u];
    }
    RG_BARRIER();
    const int end = ranges[2 * team + 1];
    for (int at = ranges[2 * team] + lane; any_team(RG_BALLOT(at < end) != 0); at += 32) {
      const bool there = at < end;
      add(there ? handed_places[at] : -1, there ? handed_values[at] : compute_t(0));
    }
  }
)";

const char kEnd[] = R"(
  const int64_t result0 = kResultFirst + line * kExtent + first;
  for (int i = lane * kWidth; i < size; i += 32 * kWidth) {
    compute_t out[kWidth];
    RG_UNROLL
    for (int v = 0; v < kWidth; ++v) out[v] = sums[base + i + v];
    rg_store_vec<kWidth>(result, result0 + i, out);
  }
)";

// How many elements a thread stores at once: two of 16 bits, where they lie so.
int64_t WidthOf(const ScatterLinesCall& c, int64_t alignment) {
  const int64_t width = std::max<int64_t>(4 / SizeBytes(c.dtype), 1);
  const bool lie_so = alignment % 4 == 0 && c.extent % width == 0 && c.result_offset % width == 0;
  return lie_so ? width : 1;
}

}  // namespace

LaunchWriter::Launch EmitScatterLines(const ScatterLinesCall& c, int64_t alignment,
                                      Dialect dialect) {
  RG_CHECK(c.lines > 0 && c.extent > 0);
  const ScatterTeams t = ScatterTeamsFor(c);
  LaunchWriter w(dialect, "scatter_lines");
  w.Read(c.index_dtype, "index", kScatterIndex);
  w.Read(c.dtype, "src", kScatterSrc);
  w.Write(c.dtype, "result", kScatterResult);
  w.ThreadsMeet();
  w.Shared(AccumulatorType(c.dtype), "sums", t.teams * t.part);
  if (t.together) {
    const int64_t handed = t.teams * 32 * t.loads;
    w.Shared(DType::kInt32, "handed_places", handed);
    w.Shared(ComputeType(c.dtype), "handed_values", handed);
    w.Shared(DType::kInt32, "counts", t.teams * t.line_teams);
    w.Shared(DType::kInt32, "begins", t.teams * t.line_teams);
    w.Shared(DType::kInt32, "ranges", t.teams * 2);
  }
  w.out().Line("typedef ", ComputeName(c.dtype), " compute_t;");
  w.Constants({{"kLineTeams", t.line_teams},
               {"kLineTeamBits", t.line_team_bits},
               {"kLineBlocks", t.line_blocks},
               {"kBlockLines", t.block_lines},
               {"kPart", t.part},
               {"kExtent", c.extent},
               {"kCount", c.count},
               {"kLoads", t.loads},
               {"kWidth", WidthOf(c, alignment)}});
  w.LongConstants({{"kPieces", Product({c.lines, t.line_blocks})},
                   {"kIndexLines", c.index_lines},
                   {"kIndexFirst", c.index_offset},
                   {"kSrcFirst", c.src_offset},
                   {"kResultFirst", c.result_offset}});
  w.Text(kBegin);
  w.Text(kSame);
  w.Text(kAdd);
  w.Text(kLoad);
  w.Text(t.together ? kTogether : kAlone);
  w.Text(kEnd);
  return w.End(t.blocks, t.threads());
}

}  // namespace retrograd
