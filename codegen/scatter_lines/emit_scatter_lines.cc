#include "codegen/scatter_lines/emit_scatter_lines.h"

#include "absl/strings/str_replace.h"
#include "fusion/kernel/ir/scale.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

// What a team and a thread work on. Two teams of one warp go on together: they meet wherever either
// has work.
const char kBegin[] = R"(
  const int lane = RG_THREAD % 32, team = RG_THREAD / 32;
  const int64_t piece = static_cast<int64_t>(RG_BLOCK) * kTeams + team;
  const bool works = piece < kPieces;
  const int64_t line = works ? piece / kParts : 0;
  const int first = works ? static_cast<int>(piece % kParts) * kPart : 0;
  const int size = works ? rg_min(kPart, kExtent - first) : 0;
  const int base = team * kPart;
  for (int i = lane; i < size; i += 32) sums[base + i] = 0;
  RG_WARP_BARRIER();
  const auto any_team = [&](bool own) {
    int any = own ? 1 : 0;
    if (RG_WARP > 32) any |= RG_SHUFFLE_XOR(any, 32);
    return any != 0;
  };
)";

// add(place, value): the terms of 32 threads, those of a place below 0 excepted. Threads with the
// same place are found by ballots over its bits; the one that stands n-th among them adds in turn
// n, so that the terms of an element come in their order, and turns are as many as the most
// frequent place has threads.
const char kAdd[] = R"(
  const auto add = [&](int place, compute_t value) {
    unsigned same = RG_BALLOT(place >= 0);
    RG_UNROLL
    for (int bit = 0; bit < kPartBits; ++bit) {
      const unsigned ones = RG_BALLOT(place >> bit & 1);
      same &= (place >> bit & 1) != 0 ? ones : ~ones;
    }
    const int turn = place >= 0 ? RG_POPCOUNT(same & ((1u << lane) - 1)) : -1;
    if (turn == 0) sums[base + place] += value;
    for (int t = 1; any_team(RG_BALLOT(turn >= t) != 0); ++t) {
      RG_WARP_BARRIER();
      if (turn == t) sums[base + place] += value;
    }
    RG_WARP_BARRIER();
  };
)";

// Where a team has a part of a line, it waits for 32 terms of its part before it adds them.
const char kWait[] = R"(
  int waiting = 0;
  const int queue = team * 64;
  const auto add_waiting = [&](bool now) {
    const bool there = now && lane < waiting;
    const int place = there ? waiting_places[queue + lane] : -1;
    const compute_t value = there ? waiting_values[queue + lane] : compute_t(0);
    const bool behind = now && lane + 32 < waiting;
    const int next_place = behind ? waiting_places[queue + 32 + lane] : 0;
    const compute_t next_value = behind ? waiting_values[queue + 32 + lane] : compute_t(0);
    add(place, value);
    if (behind) {
      waiting_places[queue + lane] = next_place;
      waiting_values[queue + lane] = next_value;
    }
    if (now) waiting = rg_max(waiting - 32, 0);
    RG_WARP_BARRIER();
  };
  const auto take = [&](int place, compute_t value) {
    const unsigned taken = RG_BALLOT(place >= 0);
    const int at = queue + waiting + RG_POPCOUNT(taken & ((1u << lane) - 1));
    if (place >= 0) {
      waiting_places[at] = place;
      waiting_values[at] = value;
    }
    waiting += RG_POPCOUNT(taken);
    RG_WARP_BARRIER();
    if (any_team(waiting >= 32)) add_waiting(waiting >= 32);
  };
)";

const char kLoop[] = R"(
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
    for (int u = 0; u < kLoads; ++u) kTake(places[u], values[u]);
  }
)";

const char kEnd[] = R"(
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
  const bool parts = t.parts > 1;
  w.Shared(AccumulatorType(c.dtype), "sums", t.teams * t.part);
  if (parts) {
    w.Shared(DType::kInt32, "waiting_places", t.teams * 64);
    w.Shared(ComputeType(c.dtype), "waiting_values", t.teams * 64);
  }
  w.out().Line("typedef ", ComputeName(c.dtype), " compute_t;");
  w.Constants({{"kTeams", t.teams},
               {"kParts", t.parts},
               {"kPart", t.part},
               {"kPartBits", t.part_bits},
               {"kExtent", c.extent},
               {"kCount", c.count},
               {"kLoads", t.loads}});
  w.LongConstants({{"kPieces", Product({c.lines, t.parts})},
                   {"kIndexLines", c.index_lines},
                   {"kIndexFirst", c.index_offset},
                   {"kSrcFirst", c.src_offset},
                   {"kResultFirst", c.result_offset}});
  w.Text(kBegin);
  w.Text(kAdd);
  if (parts) w.Text(kWait);
  w.Text(absl::StrReplaceAll(kLoop, {{"kTake", parts ? "take" : "add"}}));
  if (parts) w.Text("  add_waiting(true);\n");
  w.Text(kEnd);
  return w.End(t.blocks, t.threads());
}

}  // namespace retrograd
