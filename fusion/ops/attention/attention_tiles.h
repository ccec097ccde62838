// The schedule of attention's kernels for Hopper's tensor cores: what a block takes of the work and
// how far it loads ahead, for the gradient of Q and for those of K and V. Code generation prints
// exactly these tiles.
#ifndef RETROGRAD_FUSION_OPS_ATTENTION_ATTENTION_TILES_H_
#define RETROGRAD_FUSION_OPS_ATTENTION_ATTENTION_TILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "fusion/ops/attention/attention_call.h"

namespace retrograd {

// Rows of keys or queries that are loaded at once: a box of the copy engine.
inline constexpr int64_t kAttentionBox = 64;

struct AttentionTile {
  int groups = 2;             // warpgroups that multiply, each a box of rows of its own
  int stages = 2;             // boxes of two operands, loaded ahead
  int own_stages = 1;         // of the rows that the block keeps
  bool held = false;          // these lie in registers meanwhile; of K and V alone
  bool with_bias = false;     // a stage has a box of the bias for each warpgroup, too
  int64_t heads_at_once = 0;  // heads whose blocks are worked on side by side

  int64_t rows() const { return kAttentionBox * groups; }
  int threads() const { return 128 * (groups + 1); }  // a warpgroup more loads
  friend bool operator==(const AttentionTile&, const AttentionTile&) = default;
  std::string Print() const;  // "rows=192 stages=3 own=2 heads=64"
};

struct AttentionTiles {
  AttentionTile queries, keys;
  friend bool operator==(const AttentionTiles&, const AttentionTiles&) = default;
};

// Whether the copy engine brings a call's bias box by box: it is of a 16-bit type, with a number for
// each pair of a query and a key, in rows at multiples of 16 bytes. `dtypes` are those of the
// operands, `alignment` the bytes that their first elements' addresses are known to be multiples of
// (empty: nothing is known).
bool BiasComesInBoxes(const AttentionCall& call, absl::Span<const DType> dtypes,
                      absl::Span<const int64_t> alignment);

// Shared memory of a block: the stages, the block's rows of Q, dO and O (or K and V) and room to
// store a result's, barriers of 8 bytes, and room to align them to 1 KiB.
int64_t SharedBytesOfQueries(const AttentionTile& tile, int64_t dim);
int64_t SharedBytesOfKeys(const AttentionTile& tile, int64_t dim);

// The tiles that kernels for heads of 64 or 128 elements can have: of each number of warpgroups the
// fastest as measured on an H200 first. What registers do not hold without spills is left out, and
// so is what does not fit into a block's 227 KiB of shared memory.
// `with_bias`: the bias comes in boxes.
std::vector<AttentionTile> QueryTileCandidates(const AttentionCall& call, bool with_bias = false);
std::vector<AttentionTile> KeyTileCandidates(int64_t dim, bool with_bias = false);

// The number of warpgroups that costs least, by its first candidate, with the heads at once of this
// call on a device of so many SMs.
AttentionTiles ChooseAttentionTiles(const AttentionCall& call, int64_t sms,
                                    bool with_bias = false);

// The heads at once of these tiles: few keep what they share in the cache, many leave no SM idle in
// the end.
AttentionTiles WithHeadsAtOnce(const AttentionTiles& tiles, const AttentionCall& call, int64_t sms);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_OPS_ATTENTION_ATTENTION_TILES_H_
