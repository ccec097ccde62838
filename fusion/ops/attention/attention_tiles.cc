#include "fusion/ops/attention/attention_tiles.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "fusion/kernel/ir/scale.h"

namespace retrograd {
namespace {

enum { kQ = 1, kK = 2 };  // operands

constexpr int64_t kSharedBytes = int64_t{227} << 10;  // of a block on sm_90, by opt-in
constexpr int kMostStages = 6;                        // more hide no more
// The time of a block of three warpgroups over that of one of two, box by box. With what a block
// does but once it is fitted to 32 shapes: the faster of both is chosen, or one that takes at most
// 0.5% longer (bench/results/attention_tiles_h200.json).
constexpr double kThreeGroups = 1.31;
// What a block does but once, in boxes.
int64_t BlockCost(const AttentionTile& tile) { return 1 + tile.groups; }

constexpr int64_t kMostNumbers = 100'000;  // of blocks; above, the end does not matter

constexpr int64_t kBiasBoxBytes = kAttentionBox * kAttentionBox * 2;
constexpr int64_t kCopyAlignment = 16;  // bytes, of what the copy engine reads

int64_t SharedBytes(const AttentionTile& tile, int64_t dim, int kept, int64_t numbers) {
  const int64_t bias = tile.with_bias ? tile.groups * kBiasBoxBytes : 0;
  const int64_t boxes = 2 * kAttentionBox * dim * 2 + bias, rows = tile.rows() * dim * 2;
  return 1024 + tile.stages * (boxes + numbers) + (kept * tile.own_stages + 1) * rows +
         16 * tile.stages + 16 * tile.own_stages;
}

// The time of the busiest of `sms` blocks over the mean, where `heads` heads of blocks that cost so
// much are dealt out in turns, forth and back, `chunk` heads at a time.
double Imbalance(int64_t heads, absl::Span<const int64_t> costs, int64_t chunk, int64_t sms) {
  std::vector<int64_t> load(sms);
  const int64_t blocks = static_cast<int64_t>(costs.size());
  int64_t sum = 0, most = 0;
  for (int64_t number = 0; number < heads * blocks; ++number) {
    const int64_t turn = number / sms, at = number % sms;
    const int64_t first = number / (chunk * blocks) * chunk;
    const int64_t cost = costs[(number - first * blocks) / std::min(chunk, heads - first)];
    int64_t& mine = load[turn % 2 == 0 ? at : sms - 1 - at];
    mine += cost, sum += cost;
    most = std::max(most, mine);
  }
  return static_cast<double>(most * sms) / static_cast<double>(sum);
}

int64_t HeadsAtOnce(int64_t heads, absl::Span<const int64_t> costs, int64_t sms) {
  constexpr int64_t kChunks[] = {16, 24, 32, 48, 64, 96, 128, 192, 256, 384};
  const int64_t numbers = heads * static_cast<int64_t>(costs.size());
  if (numbers > kMostNumbers) return std::min<int64_t>(heads, 64);
  int64_t best = heads;
  double least = Imbalance(heads, costs, heads, sms);
  for (const int64_t chunk : kChunks) {
    if (chunk >= heads) break;
    const double imbalance = Imbalance(heads, costs, chunk, sms);
    if (imbalance < least - 0.004) best = chunk, least = imbalance;
  }
  return best;
}

// Of the blocks of a head, from the longest on.
std::vector<int64_t> QueryCosts(const AttentionTile& tile, const AttentionCall& call) {
  const int64_t queries = call.operands[kQ].shape[2], keys = call.operands[kK].shape[2];
  std::vector<int64_t> costs;
  for (int64_t end = CeilDiv(queries, tile.rows()) * tile.rows(); end > 0; end -= tile.rows()) {
    costs.push_back(BlockCost(tile) +
                    CeilDiv(call.causal ? std::min(end, keys) : keys, kAttentionBox));
  }
  return costs;
}

std::vector<int64_t> KeyCosts(const AttentionTile& tile, const AttentionCall& call) {
  const Shape& q = call.operands[kQ].shape;
  const Shape& k = call.operands[kK].shape;
  const int64_t query_boxes = CeilDiv(q[2], kAttentionBox);
  std::vector<int64_t> costs;
  for (int64_t first = 0; first < k[2]; first += tile.rows()) {
    const int64_t passed = call.causal ? std::min(first / kAttentionBox, query_boxes) : 0;
    costs.push_back(BlockCost(tile) + q[1] / k[1] * (query_boxes - passed));
  }
  return costs;
}

// With as many stages as fit, and with two.
template <typename Bytes>
void AddStages(AttentionTile tile, const Bytes& bytes, std::vector<AttentionTile>& list) {
  tile.stages = kMostStages;
  while (tile.stages > 2 && bytes(tile) > kSharedBytes) --tile.stages;
  if (bytes(tile) > kSharedBytes) return;
  for (const int stages : {tile.stages, 2}) {
    tile.stages = stages;
    if (std::find(list.begin(), list.end(), tile) == list.end()) list.push_back(tile);
  }
}

}  // namespace

std::string AttentionTile::Print() const {
  return absl::StrCat("rows=", rows(), " stages=", stages, " own=", own_stages, held ? " held" : "",
                      with_bias ? " bias" : "", " heads=", heads_at_once);
}

bool BiasComesInBoxes(const AttentionCall& call, absl::Span<const DType> dtypes,
                      absl::Span<const int64_t> alignment) {
  if (!HasBias(call) || SizeBytes(dtypes[kAttentionBias]) != 2) return false;
  if (alignment.size() <= kAttentionBias || alignment[kAttentionBias] % kCopyAlignment != 0) {
    return false;
  }
  const AttentionOperand& bias = call.operands[kAttentionBias];
  constexpr int64_t kStep = kCopyAlignment / 2;
  const size_t rank = bias.shape.size();
  if (rank < 2 || bias.offset % kStep != 0 || bias.strides[rank - 1] != 1) return false;
  if (bias.shape[rank - 2] != call.operands[kQ].shape[2] ||
      bias.shape[rank - 1] != call.operands[kK].shape[2]) {
    return false;
  }
  if (bias.strides[rank - 2] < bias.shape[rank - 1]) return false;  // one row for all queries
  for (size_t axis = 0; axis + 1 < rank; ++axis) {
    const bool counts = bias.shape[axis] != 1 || axis + 2 == rank;
    if (counts && (bias.strides[axis] % kStep != 0 || bias.strides[axis] < 0)) return false;
  }
  return true;
}

int64_t SharedBytesOfQueries(const AttentionTile& tile, int64_t dim) {
  return SharedBytes(tile, dim, /*kept=*/3, /*numbers=*/0);
}

// Beside each box of queries: its log-sum-exps and deltas, in fp32, and as much to align them.
int64_t SharedBytesOfKeys(const AttentionTile& tile, int64_t dim) {
  return SharedBytes(tile, dim, /*kept=*/2, /*numbers=*/1024);
}

std::vector<AttentionTile> QueryTileCandidates(const AttentionCall& call, bool with_bias) {
  const int64_t dim = call.operands[kQ].shape[3];
  const auto bytes = [&](const AttentionTile& t) { return SharedBytesOfQueries(t, dim); };
  // Three warpgroups have 160 registers a thread. Neither sums of heads of 128 fit, nor do two of
  // what comes beside the sums: a bias under way, what dropout keeps, places of dS.
  const int beside =
      (HasBias(call) ? 1 : 0) + (HasScoreGradient(call) ? 1 : 0) + (call.dropout_p > 0 ? 1 : 0);
  const int most = dim == 64 && beside < 2 ? 3 : 2;
  std::vector<AttentionTile> list;
  if (most == 3 && !with_bias) list.push_back({.groups = 3, .stages = 3, .own_stages = 2});
  if (dim != 64 && !with_bias) list.push_back({.groups = 2, .stages = 2, .own_stages = 1});
  for (int groups = most; groups >= 2; --groups) {
    for (int own : {2, 1}) {
      AddStages({.groups = groups, .own_stages = own, .with_bias = with_bias}, bytes, list);
    }
  }
  return list;
}

std::vector<AttentionTile> KeyTileCandidates(int64_t dim, bool with_bias) {
  std::vector<AttentionTile> list;
  if (!with_bias) {
    list.push_back(dim == 64
                       ? AttentionTile{.groups = 2, .stages = 5, .own_stages = 2, .held = true}
                       : AttentionTile{.groups = 2, .stages = 2, .own_stages = 1});
  }
  const auto bytes = [&](const AttentionTile& t) { return SharedBytesOfKeys(t, dim); };
  // K and V of heads of 128 would take all of a thread's registers. Both sums of a third warpgroup
  // would leave it too few.
  for (const bool held : {true, false}) {
    if (held && dim > 64) continue;
    for (int own : {2, 1}) {
      AddStages({.own_stages = own, .held = held, .with_bias = with_bias}, bytes, list);
    }
  }
  return list;
}

namespace {

// Blocks that work side by side: an even number.
int64_t BlocksAtOnce(int64_t sms) { return std::max<int64_t>(sms, 2) / 2 * 2; }

int64_t QueryHeads(const AttentionCall& call) {
  return call.operands[kQ].shape[0] * call.operands[kQ].shape[1];
}
int64_t KeyHeads(const AttentionCall& call) {
  return call.operands[kQ].shape[0] * call.operands[kK].shape[1];
}

// What all blocks take as long as the busiest, in boxes of two warpgroups.
double CostOfQueries(const AttentionTile& tile, const AttentionCall& call, int64_t blocks) {
  const std::vector<int64_t> costs = QueryCosts(tile, call);
  const int64_t heads = QueryHeads(call), numbers = heads * static_cast<int64_t>(costs.size());
  const double imbalance =
      numbers > kMostNumbers ? 1 : Imbalance(heads, costs, tile.heads_at_once, blocks);
  const int64_t sum = std::accumulate(costs.begin(), costs.end(), int64_t{0});
  return static_cast<double>(heads * sum) * imbalance * (tile.groups == 3 ? kThreeGroups : 1);
}

AttentionTile ForQueries(AttentionTile tile, const AttentionCall& call, int64_t blocks) {
  tile.heads_at_once = HeadsAtOnce(QueryHeads(call), QueryCosts(tile, call), blocks);
  return tile;
}

AttentionTile ForKeys(AttentionTile tile, const AttentionCall& call, int64_t blocks) {
  tile.heads_at_once = HeadsAtOnce(KeyHeads(call), KeyCosts(tile, call), blocks);
  return tile;
}

}  // namespace

AttentionTiles WithHeadsAtOnce(const AttentionTiles& tiles, const AttentionCall& call,
                               int64_t sms) {
  const int64_t blocks = BlocksAtOnce(sms);
  return {.queries = ForQueries(tiles.queries, call, blocks),
          .keys = ForKeys(tiles.keys, call, blocks)};
}

AttentionTiles ChooseAttentionTiles(const AttentionCall& call, int64_t sms, bool with_bias) {
  const int64_t blocks = BlocksAtOnce(sms);
  std::optional<AttentionTile> best;
  double least = 0;
  int before = 0;  // warpgroups of the candidate before
  for (const AttentionTile& candidate : QueryTileCandidates(call, with_bias)) {
    if (candidate.groups == std::exchange(before, candidate.groups)) continue;
    const AttentionTile tile = ForQueries(candidate, call, blocks);
    const double cost = CostOfQueries(tile, call, blocks);
    if (!best.has_value() || cost <= least) best = tile, least = cost;
  }
  const AttentionTile keys = KeyTileCandidates(call.operands[kQ].shape[3], with_bias)[0];
  return {.queries = *best, .keys = ForKeys(keys, call, blocks)};
}

}  // namespace retrograd
