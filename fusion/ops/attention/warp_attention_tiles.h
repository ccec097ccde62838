// The schedule of attention's kernels whose warps multiply tiles of 16 x 16 numbers
// (codegen/attention/emit_warp_attention.h): what a block keeps of the work, what passes by at
// once, and how far it loads ahead.
#ifndef RETROGRAD_FUSION_OPS_ATTENTION_WARP_ATTENTION_TILES_H_
#define RETROGRAD_FUSION_OPS_ATTENTION_WARP_ATTENTION_TILES_H_

#include <cstdint>
#include <optional>
#include <string>

#include "fusion/ops/attention/attention_call.h"

namespace retrograd {

struct WarpAttentionTile {
  int warps = 4;     // each has 16 rows of the block's
  int groups = 1;    // of so many warps, which share out the columns, then the channels: 1, 2 or 4
  int columns = 32;  // rows of the other operands that pass by at once; 16 x groups divides it
  int stages = 2;    // of these in shared memory: 1 or 2

  int rows() const { return 16 * warps; }
  friend bool operator==(const WarpAttentionTile&, const WarpAttentionTile&) = default;
  std::string Print() const;  // "rows=64 groups=1 columns=32 stages=2"
};

struct WarpAttentionTiles {
  WarpAttentionTile queries, keys;
  friend bool operator==(const WarpAttentionTiles&, const WarpAttentionTiles&) = default;
};

// Channels of a head in shared memory, and the elements from a row to the next one there. Rows that
// lie eight elements behind a multiple of 16 let no two lanes meet in a bank.
int64_t WarpChannels(int64_t dim, int groups);
int64_t WarpPitch(int64_t channels);

// Elements of shared memory of a block, in the call's dtype.
int64_t WarpElementsOfQueries(const WarpAttentionTile& tile, const AttentionCall& call);
int64_t WarpElementsOfKeys(const WarpAttentionTile& tile, const AttentionCall& call);

// The tiles for blocks of at most so many bytes of shared memory; none where even the smallest do
// not fit, or heads have more channels than registers of four groups hold sums of: 384 (fp64: 192).
std::optional<WarpAttentionTiles> ChooseWarpAttentionTiles(const AttentionCall& call,
                                                           int64_t shared_bytes);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_OPS_ATTENTION_WARP_ATTENTION_TILES_H_
