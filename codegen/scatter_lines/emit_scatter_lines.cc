#include "codegen/scatter_lines/emit_scatter_lines.h"

#include "fusion/kernel/ir/scale.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

// 32 threads take 32 neighbouring indices at once. Those with the same index are found by ballots
// over the bits of their places; the one that stands n-th among them adds in turn n, so that the
// terms of an element come in their order, and turns are as many as the most frequent index has
// threads. Two teams of one warp go on together.
const char kText[] = R"(
  const int lane = RG_THREAD % 32, team = RG_THREAD / 32;
  const int64_t piece = static_cast<int64_t>(RG_BLOCK) * kTeams + team;
  const bool works = piece < kPieces;
  const int64_t line = works ? piece / kParts : 0;
  const int first = works ? static_cast<int>(piece % kParts) * kPart : 0;
  const int size = works ? rg_min(kPart, kExtent - first) : 0;
  const int base = team * kPart;
  for (int i = lane; i < size; i += 32) sums[base + i] = 0;
  RG_WARP_BARRIER();
  const int64_t index0 = kIndexFirst + line % kIndexLines * kCount;
  const int64_t src0 = kSrcFirst + line * kCount;
  for (int k0 = 0; k0 < kCount; k0 += 32 * kLoads) {
    int places[kLoads];
    compute_t values[kLoads];
    RG_UNROLL
    for (int u = 0; u < kLoads; ++u) {
      const int k = k0 + u * 32 + lane, there = rg_min(k, kCount - 1);
      const int64_t named = rg_load(index, index0 + there);
      values[u] = rg_load(src, src0 + there);
      const int64_t place = (named < 0 ? named + kExtent : named) - first;
      places[u] = k < kCount && place >= 0 && place < size ? static_cast<int>(place) : -1;
    }
    RG_UNROLL
    for (int u = 0; u < kLoads; ++u) {
      unsigned same = RG_BALLOT(places[u] >= 0);
      RG_UNROLL
      for (int bit = 0; bit < kPartBits; ++bit) {
        const unsigned ones = RG_BALLOT(places[u] >> bit & 1);
        same &= (places[u] >> bit & 1) != 0 ? ones : ~ones;
      }
      const int turn = places[u] >= 0 ? RG_POPCOUNT(same & ((1u << lane) - 1)) : -1;
      if (turn == 0) sums[base + places[u]] += values[u];
      for (int t = 1;; ++t) {
        int left = RG_BALLOT(turn >= t) != 0;
        if (RG_WARP > 32) left |= RG_SHUFFLE_XOR(left, 32);
        if (left == 0) break;
        RG_WARP_BARRIER();
        if (turn == t) sums[base + places[u]] += values[u];
      }
      RG_WARP_BARRIER();
    }
  }
  const int64_t result0 = kResultFirst + line * kExtent + first;
  for (int i = lane; i < size; i += 32) rg_store(result, result0 + i, sums[base + i]);
)";

}  // namespace

LaunchWriter::Launch EmitScatterLines(const ScatterLinesCall& c, Dialect dialect) {
  RG_CHECK(c.lines > 0 && c.extent > 0);
  const ScatterTeams t = ScatterTeamsFor(c);
  LaunchWriter w(dialect, "scatter_lines");
  w.Read(c.index_dtype, "index", kScatterIndex);
  w.Read(c.dtype, "src", kScatterSrc);
  w.Write(c.dtype, "result", kScatterResult);
  w.ThreadsMeet();
  w.Shared(AccumulatorType(c.dtype), "sums", t.teams * t.part);
  w.out().Line("typedef ", ComputeName(c.dtype), " compute_t;");
  w.Constants({{"kTeams", t.teams},
               {"kParts", t.parts},
               {"kPart", t.part},
               {"kPartBits", t.part_bits},
               {"kExtent", c.extent},
               {"kCount", c.count},
               {"kLoads", kScatterLoads}});
  w.LongConstants({{"kPieces", Product({c.lines, t.parts})},
                   {"kIndexLines", c.index_lines},
                   {"kIndexFirst", c.index_offset},
                   {"kSrcFirst", c.src_offset},
                   {"kResultFirst", c.result_offset}});
  w.Text(kText);
  return w.End(t.blocks, t.threads());
}

}  // namespace retrograd
