// The schedule of a generated GEMM kernel: the tiles that it works on, how far it loads ahead, and
// which blocks share loads. It is chosen by price and stands in the plan; code generation prints
// exactly this tile.
//
// A block has a warpgroup that loads and two that multiply, each a tile of its own: while one makes
// the epilogue of its tile, the other keeps the tensor cores busy.
#ifndef RETROGRAD_FUSION_KERNEL_GEMM_GEMM_TILE_H_
#define RETROGRAD_FUSION_KERNEL_GEMM_GEMM_TILE_H_

#include <cstdint>
#include <string>

namespace retrograd {

struct GemmTile {
  int m = 128, n = 128;  // rows and columns of the result that a warpgroup makes at once
  int k = 64;      // terms of the sum that are loaded at once, of 16 bits; of fp8 twice as many
  int stages = 5;  // loads of both operands in shared memory at once
  // Blocks of a cluster, one below the other and side by side: those of a row share what they load
  // of the left operand, those of a column what they load of the right one.
  int tall = 1, wide = 2;

  int cluster() const { return tall * wide; }
  friend bool operator==(const GemmTile&, const GemmTile&) = default;
  std::string Print() const;  // "128x128x64 stages=5 cluster=1x2"
};

// A box of an operand that the copy engine loads: so many rows of 128 bytes, which it swizzles.
inline constexpr int kGemmBox = 64;
// A warpgroup, which also makes the epilogue of its tile.
inline constexpr int kGemmThreads = 128;
// Elements of 16 bits.
inline constexpr int kGemmElementBytes = 2;

// Shared memory of a block: the stages, a product of each multiplying warpgroup, a barrier of 8
// bytes for each full and each empty stage and for each turn, and room to align them to 1 KiB.
int64_t SharedBytes(const GemmTile& tile);

// Why no kernel can be printed for this tile; empty if one can. `shared_bytes`: what a block may
// have.
std::string WhyNotTile(const GemmTile& tile, int64_t shared_bytes);

// The most stages that fit, at most 8 (loads of 8 steps hide any latency); 0 if fewer than 2 do.
int MostStages(const GemmTile& tile, int64_t shared_bytes);

// Clusters that cover a result of m x n, each making a tile of every block of its own.
int64_t ClustersOf(const GemmTile& tile, int64_t m, int64_t n);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_GEMM_GEMM_TILE_H_
