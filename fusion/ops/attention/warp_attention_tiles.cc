#include "fusion/ops/attention/warp_attention_tiles.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "fusion/kernel/ir/scale.h"

namespace retrograd {
namespace {

enum { kQ = 1, kK = 2, kV = 3 };  // operands

// Registers of a lane that hold sums of gradients, at most: scores and what is multiplied have the
// rest.
constexpr int64_t kMostSumRegisters = 96;
constexpr int kMostGroups = 4, kLanes = 32;
constexpr int kWarps = 4, kFewestColumns = 16, kUsualColumns = 32;
// Blocks on an SM that hide loads from each other: if so many fit, each loads ahead.
constexpr int64_t kBlocksAhead = 3;
// Rows of both tensors of a block, of what passes by, and the numbers between the products.
int64_t Elements(const WarpAttentionTile& tile, const AttentionCall& call, int kinds) {
  const int64_t q = WarpPitch(WarpChannels(call.operands[kQ].shape[3], tile.groups));
  const int64_t v = WarpPitch(WarpChannels(call.operands[kV].shape[3], tile.groups));
  return (tile.rows() + tile.columns * tile.stages) * (q + v) +
         kinds * tile.rows() * WarpPitch(tile.columns);
}

// The groups of warps that share out so many channels of sums, 0 where there are too many. A warp
// has 16 rows of them: half a number a lane for each channel.
int GroupsFor(int64_t channels, DType dtype) {
  const int64_t registers = channels / 2 * (dtype == DType::kFp64 ? 2 : 1);
  for (int groups = 1; groups <= kMostGroups; groups *= 2) {
    if (registers <= kMostSumRegisters * groups) return groups;
  }
  return 0;
}

// The tile, or one with fewer columns, and with fewer rows, if blocks have no more room.
template <typename Count>
std::optional<WarpAttentionTile> TileThatFits(WarpAttentionTile tile, int64_t room,
                                              const Count& elements) {
  const int columns = tile.columns;
  for (; tile.warps >= 1; tile.warps /= 2) {
    for (tile.columns = columns; tile.columns >= kFewestColumns * tile.groups; tile.columns /= 2) {
      if (tile.columns > tile.warps * tile.groups * kLanes) continue;  // a thread for each number
      tile.stages = 2;
      if (elements(tile) * kBlocksAhead <= room) return tile;
      tile.stages = 1;
      if (elements(tile) <= room) return tile;
    }
  }
  return std::nullopt;
}

// Tiles of the kernel that keeps keys and values in fp32, where registers have room for the sums of
// one group: the time of a pair of a query and a key, and what blocks of fewer rows leave of it
// where the work of blocks differs. Measured on an H200
// (docs/decisions/122-attention-by-warp-tiles.md).
struct KeysTile {
  WarpAttentionTile tile;
  double cost, causal_share;
};
constexpr KeysTile kKeysTiles[] = {
    {{.warps = 4, .groups = 1, .columns = 32}, 1.0, 1.0},
    {{.warps = 2, .groups = 2, .columns = 64}, 1.02, 0.87},
    {{.warps = 2, .groups = 2, .columns = 32}, 1.075, 0.88},
};

WarpAttentionTile CheapestKeysTile(const AttentionCall& call) {
  const KeysTile* best = nullptr;
  double least = 0;
  for (const KeysTile& each : kKeysTiles) {
    const auto padded = [](int64_t extent, int64_t step) {
      return static_cast<double>(CeilDiv(extent, step) * step);
    };
    const int groups = each.tile.groups;
    const double pairs = padded(call.operands[kK].shape[2], each.tile.rows()) *
                         padded(call.operands[kQ].shape[2], each.tile.columns);
    const double channels = static_cast<double>(WarpChannels(call.operands[kQ].shape[3], groups) +
                                                WarpChannels(call.operands[kV].shape[3], groups));
    const double cost = each.cost * (call.causal ? each.causal_share : 1) * pairs * channels;
    if (best == nullptr || cost < least) best = &each, least = cost;
  }
  return best->tile;
}

}  // namespace

std::string WarpAttentionTile::Print() const {
  return absl::StrCat("rows=", rows(), " groups=", groups, " columns=", columns,
                      " stages=", stages);
}

int64_t WarpChannels(int64_t dim, int groups) { return CeilDiv(dim, 16 * groups) * 16 * groups; }
int64_t WarpPitch(int64_t channels) { return channels + 8; }

int64_t WarpElementsOfQueries(const WarpAttentionTile& tile, const AttentionCall& call) {
  return Elements(tile, call, 1);
}

int64_t WarpElementsOfKeys(const WarpAttentionTile& tile, const AttentionCall& call) {
  return Elements(tile, call, 2);
}

std::optional<WarpAttentionTiles> ChooseWarpAttentionTiles(const AttentionCall& call,
                                                           int64_t shared_bytes) {
  const int64_t q = WarpChannels(call.operands[kQ].shape[3], 1);
  const int64_t v = WarpChannels(call.operands[kV].shape[3], 1);
  const int of_queries = GroupsFor(q, call.dtype), of_keys = GroupsFor(q + v, call.dtype);
  if (of_queries == 0 || of_keys == 0) return std::nullopt;
  const int64_t room = shared_bytes / SizeBytes(call.dtype);
  const int usual = call.dtype == DType::kFp64 ? kFewestColumns : kUsualColumns;
  // Fewer groups, whose sums spill, where blocks have no room for the columns of all.
  const auto with_groups = [&](int groups, const auto& elements) {
    std::optional<WarpAttentionTile> tile;
    for (; groups >= 1 && !tile.has_value(); groups /= 2) {
      tile = TileThatFits({.warps = kWarps, .groups = groups, .columns = usual * groups}, room,
                          elements);
    }
    return tile;
  };
  const auto queries = with_groups(
      of_queries, [&](const WarpAttentionTile& tile) { return WarpElementsOfQueries(tile, call); });
  const auto of_tile = [&](const WarpAttentionTile& tile) {
    return WarpElementsOfKeys(tile, call);
  };
  std::optional<WarpAttentionTile> keys;
  if (call.dtype == DType::kFp32 && of_keys == 1) {
    keys = TileThatFits(CheapestKeysTile(call), room, of_tile);
  }
  if (!keys.has_value()) keys = with_groups(of_keys, of_tile);
  if (!queries.has_value() || !keys.has_value()) return std::nullopt;
  return WarpAttentionTiles{.queries = *queries, .keys = *keys};
}

}  // namespace retrograd
