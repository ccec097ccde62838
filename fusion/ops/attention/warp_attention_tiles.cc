#include "fusion/ops/attention/warp_attention_tiles.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "fusion/kernel/ir/scale.h"

namespace retrograd {
namespace {

enum { kQ = 1, kV = 3 };  // operands

constexpr int64_t kMostChannels = 256;  // of which a lane has 128 sums in registers
// Sums of two gradients that a lane can have beside the scores'.
constexpr int64_t kMostChannelsOfTwo = 256;

// From the fastest on, as far as blocks have room.
constexpr WarpAttentionTile kCandidates[] = {
    {.warps = 4, .columns = 64, .stages = 1}, {.warps = 4, .columns = 32, .stages = 2},
    {.warps = 4, .columns = 32, .stages = 1}, {.warps = 2, .columns = 32, .stages = 1},
    {.warps = 2, .columns = 16, .stages = 1}, {.warps = 1, .columns = 16, .stages = 1}};

// Rows of both tensors of a block, of what passes by, and the numbers between the products.
int64_t Elements(const WarpAttentionTile& tile, const AttentionCall& call, int kinds) {
  const int64_t q = WarpPitch(WarpChannels(call.operands[kQ].shape[3]));
  const int64_t v = WarpPitch(WarpChannels(call.operands[kV].shape[3]));
  return (tile.rows() + tile.columns * tile.stages) * (q + v) +
         kinds * tile.rows() * WarpPitch(tile.columns);
}

template <typename Count>
std::optional<WarpAttentionTile> FirstThatFits(const Count& elements, int64_t room) {
  for (const WarpAttentionTile& tile : kCandidates) {
    if (elements(tile) <= room) return tile;
  }
  return std::nullopt;
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
  const auto queries = FirstThatFits(
      [&](const WarpAttentionTile& tile) { return WarpElementsOfQueries(tile, call); }, room);
  const auto keys = FirstThatFits(
      [&](const WarpAttentionTile& tile) { return WarpElementsOfKeys(tile, call); }, room);
  if (!queries.has_value() || !keys.has_value()) return std::nullopt;
  return WarpAttentionTiles{
      .queries = *queries, .keys = *keys, .apart = q + v > kMostChannelsOfTwo};
}

}  // namespace retrograd
