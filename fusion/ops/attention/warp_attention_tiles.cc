#include "fusion/ops/attention/warp_attention_tiles.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "fusion/kernel/ir/scale.h"

namespace retrograd {
namespace {

enum { kQ = 1, kV = 3 };  // operands

constexpr int64_t kMostChannels = 256;        // of which a lane has 128 sums in registers
constexpr int64_t kChannelsOfWideTiles = 64;  // registers have room for the scores of wide tiles
// Sums of two gradients that a lane can have beside the scores'.
constexpr int64_t kMostChannelsOfTwo = 256;

constexpr int kWarps = 4, kFewestColumns = 16, kUsualColumns = 32, kManyColumns = 64;
// Blocks on an SM that hide loads from each other: if so many fit, each loads ahead.
constexpr int64_t kBlocksAhead = 3;
// Time of a column in wide tiles over that in others: measured on an H200
// (docs/decisions/122-attention-by-warp-tiles.md).
constexpr double kWideShare = 0.95;

// Rows of both tensors of a block, of what passes by, and the numbers between the products.
int64_t Elements(const WarpAttentionTile& tile, const AttentionCall& call, int kinds) {
  const int64_t q = WarpPitch(WarpChannels(call.operands[kQ].shape[3]));
  const int64_t v = WarpPitch(WarpChannels(call.operands[kV].shape[3]));
  return (tile.rows() + tile.columns * tile.stages) * (q + v) +
         kinds * tile.rows() * WarpPitch(tile.columns);
}

// The tile with so many columns, or with fewer, and with fewer rows, if blocks have no more room.
template <typename Count>
std::optional<WarpAttentionTile> TileThatFits(int columns, int64_t room, const Count& elements) {
  for (int warps = kWarps; warps >= 1; warps /= 2) {
    for (int c = columns; c >= kFewestColumns; c /= 2) {
      WarpAttentionTile tile{.warps = warps, .columns = c, .stages = 2};
      if (elements(tile) * kBlocksAhead <= room) return tile;
      tile.stages = 1;
      if (elements(tile) <= room) return tile;
    }
  }
  return std::nullopt;
}

// Of the kernel that keeps keys and values, past which `queries` rows go. The other one has narrow
// tiles: it has fewer sums beside its scores, and more blocks on an SM hide more than wide tiles
// save.
int ColumnsOfKeys(int64_t queries) {
  const auto padded = [&](int columns) {
    return static_cast<double>(CeilDiv(queries, columns) * columns);
  };
  return kWideShare * padded(kManyColumns) < padded(kUsualColumns) ? kManyColumns : kUsualColumns;
}

}  // namespace

std::string WarpAttentionTile::Print() const {
  return absl::StrCat("rows=", rows(), " columns=", columns, " stages=", stages);
}

int64_t WarpChannels(int64_t dim) { return CeilDiv(dim, 16) * 16; }
int64_t WarpPitch(int64_t channels) { return channels + 8; }

int64_t WarpElementsOfQueries(const WarpAttentionTile& tile, const AttentionCall& call) {
  return Elements(tile, call, 1);
}

int64_t WarpElementsOfKeys(const WarpAttentionTile& tile, const AttentionCall& call) {
  return Elements(tile, call, 2);
}

std::optional<WarpAttentionTiles> ChooseWarpAttentionTiles(const AttentionCall& call,
                                                           int64_t shared_bytes) {
  const int64_t q = WarpChannels(call.operands[kQ].shape[3]);
  const int64_t v = WarpChannels(call.operands[kV].shape[3]);
  if (std::max(q, v) > kMostChannels) return std::nullopt;
  const int64_t room = shared_bytes / SizeBytes(call.dtype);
  const int usual = call.dtype == DType::kFp64 ? kFewestColumns : kUsualColumns;
  const auto queries = TileThatFits(usual, room, [&](const WarpAttentionTile& tile) {
    return WarpElementsOfQueries(tile, call);
  });
  const int columns = std::max(q, v) <= kChannelsOfWideTiles && usual == kUsualColumns
                          ? ColumnsOfKeys(call.operands[kQ].shape[2])
                          : usual;
  const auto keys = TileThatFits(
      columns, room, [&](const WarpAttentionTile& tile) { return WarpElementsOfKeys(tile, call); });
  if (!queries.has_value() || !keys.has_value()) return std::nullopt;
  return WarpAttentionTiles{
      .queries = *queries, .keys = *keys, .apart = q + v > kMostChannelsOfTwo};
}

}  // namespace retrograd
