#include "fusion/ops/scatter_lines/scatter_lines_call.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "fusion/kernel/ir/scale.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

// Bytes of a team's sums, at most: eight teams of a block share 32 KiB, and what they hand to each
// other 13 KiB, so that a block has room on every device.
constexpr int64_t kMostBytes = 4096;
constexpr int64_t kTeams = 8;
constexpr int64_t kMostLoads = 4;

// Simple instructions of a thread, by launches on an H200 (bench/results/line_scatters_h200.json).
// To add 32 terms at any places, which is mostly waiting for banks of shared memory; to hand 32 to
// their teams, and for each bit of the number of a team; and to clear and to store an element.
constexpr int64_t kToAdd = 75, kToHand = 130, kToHandBit = 5, kToStore = 15;

// Of the teams of one line.
int64_t Results(const ScatterLinesCall& c, const ScatterTeams& t) {
  const int64_t steps = CeilDiv(c.count, 32);
  const int64_t elements = Product({t.parts, CeilDiv(t.part, 32), kToStore});
  if (!t.together) return Product({t.parts, steps, kToAdd}) + elements;
  const int64_t hand = kToHand + kToHandBit * t.line_team_bits;
  return Product({t.line_blocks, steps, hand}) + Product({steps + t.parts, kToAdd}) + elements;
}

}  // namespace

ScatterLinesCall ScatterLinesOf(const Call& call) {
  RG_CHECK(call.op == Op::scatter_lines && call.operands.size() == 2 && call.results.size() == 1);
  const CallTensor &index = call.operands[0], &src = call.operands[1], &result = call.results[0];
  const auto lines = [](const CallTensor& t) {
    int64_t n = 1;
    for (size_t d = 0; d + 1 < t.shape.size(); ++d) n *= t.shape[d];
    return n;
  };
  return {.lines = lines(src),
          .index_lines = lines(index),
          .count = src.shape.back(),
          .extent = result.shape.back(),
          .dtype = src.dtype,
          .index_dtype = index.dtype,
          .index_offset = index.offset,
          .src_offset = src.offset,
          .result_offset = result.offset};
}

ScatterTeams ScatterTeamsFor(const ScatterLinesCall& c) {
  const int64_t most = kMostBytes / SizeBytes(AccumulatorType(c.dtype));
  ScatterTeams t{.teams = kTeams};
  t.parts = CeilDiv(c.extent, most);
  if (t.parts == 0) return t;
  t.part = CeilDiv(c.extent, 2 * t.parts) * 2;
  t.line_blocks = CeilDiv(t.parts, kTeams);
  t.line_teams = CeilDiv(t.parts, t.line_blocks);
  while ((int64_t{1} << t.line_team_bits) < t.line_teams) ++t.line_team_bits;
  t.block_lines = kTeams / t.line_teams;
  if (t.parts > 1) {
    ScatterTeams together = t;
    together.together = true;
    t.together = Results(c, together) < Results(c, t);
  }
  const int64_t at_once = 32 * (t.together ? t.line_teams : 1);
  t.loads = std::clamp<int64_t>(CeilDiv(c.count, at_once), 1, kMostLoads);
  t.blocks = CeilDiv(Product({c.lines, t.line_blocks}), t.block_lines);
  return t;
}

bool IsCountable(const ScatterLinesCall& c) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  constexpr int64_t step = 32 * kTeams * kMostLoads;
  return c.count + step <= kMost && c.extent <= kMost && ScatterTeamsFor(c).blocks <= kMost;
}

// The bytes that move, or the instructions, whichever take longer; a team that has a line of many
// indices waits for its loads.
Price PriceOfScatterLines(const ScatterLinesCall& c, const DeviceSpec& d, bool explain) {
  const ScatterTeams t = ScatterTeamsFor(c);
  const int64_t element = SizeBytes(c.dtype), index = SizeBytes(c.index_dtype);
  Price price;
  price.read_bytes =
      Product({c.lines, c.count, element}) + Product({c.index_lines, c.count, index});
  price.written_bytes = Product({c.lines, c.extent, element});
  const int64_t hbm = TransferPs(price.read_bytes + price.written_bytes, d.hbm_bytes_per_s);
  const int64_t readers = t.together ? t.line_blocks : t.parts;
  const int64_t again = Product({c.lines, readers, c.count, element + index});
  const int64_t cache = TransferPs(again, d.cache_bytes_per_s);
  // Of empty lines no load is under way.
  const int64_t at_once = std::max<int64_t>(32 * t.loads * (t.together ? t.line_teams : 1), 1);
  const int64_t batches = CeilDiv(c.count, at_once);
  const int64_t rate = d.rate_milli[static_cast<int>(CostClass::kSimple)];
  const int64_t results = Product({c.lines, Results(c, t), 32});
  const int64_t compute =
      rate == 0 ? 0 : MulDiv(results, 1000 * kPsPerSecond / d.sms / rate, d.clock_hz);
  const int64_t waits = Product({batches, d.scatter_batch_ps});
  const int64_t body = std::max({hbm, cache, compute, waits});
  price.ps = std::min(kHuge, d.launch_graph_ps + body);
  if (!explain) return price;
  price.terms = {{"launch", d.launch_graph_ps, false, "1 launch"}};
  const int64_t moving = std::max({hbm, cache, compute});
  bool bound = false;
  const auto term = [&](std::string name, int64_t ps, std::string formula) {
    if (ps == 0) return;
    const bool binds = ps == moving && !bound;
    bound = bound || binds;
    price.terms.push_back({std::move(name), ps, binds, std::move(formula)});
  };
  term("hbm", hbm, absl::StrCat(price.read_bytes, " B read + ", price.written_bytes, " B written"));
  term("cache", cache, absl::StrCat(again, " B by all teams"));
  term("compute", compute, absl::StrCat(results, " simple results"));
  if (waits > moving) {
    price.terms.push_back({"waits", waits - moving, waits - moving > moving,
                           absl::StrCat(batches, " loads of a team wait for others")});
  }
  return price;
}

}  // namespace retrograd
