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
// Threads of an SM at once, which all devices have.
constexpr int64_t kThreadsAtOnce = 2048;

int64_t BytesOfTeams(const ScatterLinesCall& c, const ScatterTeams& t) {
  return Product({t.teams, t.part, SizeBytes(AccumulatorType(c.dtype))});
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
  t.part = t.parts == 0 ? 0 : CeilDiv(c.extent, t.parts);
  while ((int64_t{1} << t.part_bits) < t.part) ++t.part_bits;
  t.blocks = CeilDiv(Product({c.lines, t.parts}), t.teams);
  return t;
}

bool IsCountable(const ScatterLinesCall& c) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const int64_t step = 32 * kScatterLoads;
  return c.count + step <= kMost && c.extent <= kMost && ScatterTeamsFor(c).blocks <= kMost;
}

// The bytes that move, or the loads that a team waits for, one batch after the other, in as many
// waves of teams as there are.
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
  const int64_t fit =
      std::max<int64_t>(std::min(kThreadsAtOnce / t.threads(),
                                 d.shared_bytes_per_sm / std::max<int64_t>(BytesOfTeams(c, t), 1)),
                        1);
  const int64_t waves = CeilDiv(t.blocks, Product({d.sms, fit}));
  const int64_t batches = CeilDiv(c.count, 32 * kScatterLoads);
  const int64_t waits = Product({waves, batches, d.scatter_batch_ps});
  const int64_t body = std::max({hbm, cache, waits});
  price.ps = std::min(kHuge, d.launch_graph_ps + body);
  if (explain) {
    price.terms = {
        {"launch", d.launch_graph_ps, false, "1 launch"},
        {"hbm", hbm, hbm == body,
         absl::StrCat(price.read_bytes, " B read + ", price.written_bytes, " B written")},
        {"cache", cache, cache == body && hbm != body, absl::StrCat(again, " B by all teams")},
        {"wait", waits, waits == body && hbm != body && cache != body,
         absl::StrCat(batches, " batches of indices in ", waves, " waves of teams")}};
  }
  return price;
}

}  // namespace retrograd
