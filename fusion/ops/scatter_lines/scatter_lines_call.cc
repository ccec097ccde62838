#include "fusion/ops/scatter_lines/scatter_lines_call.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "fusion/kernel/ir/scale.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

// Bytes of a team's sums, at most: eight teams of a block share 32 KiB, and an SM has room for the
// blocks that its threads fill.
constexpr int64_t kMostBytes = 4096;
constexpr int64_t kTeams = 8;
constexpr int64_t kMostLoads = 4;

// Simple instructions of a thread, by three launches on an H100 at 24 to 1,500 indices a line: to
// add 32 terms, besides those for each bit of their places; to see which of 32 are in a part; and
// to clear and to store an element.
constexpr int64_t kToAdd = 53, kToAddBit = 14, kToTake = 40, kToStore = 18;

// Of all teams, as results of simple instructions.
int64_t Results(const ScatterLinesCall& c, const ScatterTeams& t) {
  const int64_t steps = CeilDiv(c.count, 32);
  const int64_t add = kToAdd + kToAddBit * t.part_bits;
  const int64_t of_line = t.parts > 1
                              ? Product({t.parts, steps, kToTake}) + Product({steps + t.parts, add})
                              : Product({steps, add});
  const int64_t elements = Product({t.parts, CeilDiv(t.part, 32), kToStore});
  return Product({c.lines, of_line + elements, 32});
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
  t.loads = std::clamp<int64_t>(CeilDiv(c.count, 32), 1, kMostLoads);
  t.parts = CeilDiv(c.extent, most);
  t.part = t.parts == 0 ? 0 : CeilDiv(c.extent, t.parts);
  while ((int64_t{1} << t.part_bits) < t.part) ++t.part_bits;
  t.blocks = CeilDiv(Product({c.lines, t.parts}), t.teams);
  return t;
}

bool IsCountable(const ScatterLinesCall& c) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  constexpr int64_t step = 32 * kMostLoads;
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
  const int64_t again = Product({c.lines, t.parts, c.count, element + index});
  const int64_t cache = TransferPs(again, d.cache_bytes_per_s);
  const int64_t rate = d.rate_milli[static_cast<int>(CostClass::kSimple)];
  const int64_t results = Results(c, t);
  const int64_t compute =
      rate == 0 ? 0 : MulDiv(results, 1000 * kPsPerSecond / d.sms / rate, d.clock_hz);
  const int64_t waits = Product({CeilDiv(c.count, 32 * t.loads), d.scatter_batch_ps});
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
    price.terms.push_back(
        {"waits", waits - moving, waits - moving > moving,
         absl::StrCat(CeilDiv(c.count, 32 * t.loads), " loads of a team wait for others")});
  }
  return price;
}

}  // namespace retrograd
