// Schedules of the kernels that make a convolution's gradients as matmuls whose operands are
// gathered from the images while they are multiplied ("implicit GEMM"), and which calls have such
// kernels.
//
//                 rows                 columns                 depth, along which is summed
// input gradient  pixels of x          channels of x           taps x channels of y
// weight gradient channels of y        taps x channels of x    pixels of y
// Each for every group. Pixels of x that meet different taps, for the stride, are products of their
// own (stride_phases.h), in one launch.
#ifndef RETROGRAD_FUSION_OPS_CONVOLUTION_IMPLICIT_GEMM_TILES_H_
#define RETROGRAD_FUSION_OPS_CONVOLUTION_IMPLICIT_GEMM_TILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "fusion/ops/convolution/convolution_call.h"

namespace retrograd {

// A block makes rows x columns sums, over `depth` products at a time, of which `stages` parts are
// on their way or in shared memory. Its warps share the tile, and `slices` groups of them the
// products. So many splits make each tile; a second launch adds them up.
struct ImplicitGemmTile {
  int rows = 64, columns = 64, depth = 64;
  int stages = 4;
  int warp_rows = 2, warp_columns = 2, slices = 1;
  int splits = 1;
  // The operands come in boxes (image_boxes.h), and warpgroups multiply 64 rows each.
  bool boxes = false;

  int warps() const { return warp_rows * warp_columns * slices; }
  friend bool operator==(const ImplicitGemmTile&, const ImplicitGemmTile&) = default;
  std::string Print() const;  // "64 x 64 x 64 tiles by 2 x 2 warps, 4 stages, 3 splits"
};

// Elements that a thread moves at once: of the two operands, and of the result where there is one
// split and where there are several.
struct ImplicitGemmVectors {
  int first = 1, second = 1, result = 1, partial = 1;
};
ImplicitGemmVectors ImplicitGemmVectorsOf(const ConvolutionCall& call);

// Tiles along the rows, of all phases and groups; along the columns.
int64_t RowTiles(const ImplicitGemmTile& tile, const ConvolutionCall& call);
int64_t ColumnTiles(const ImplicitGemmTile& tile, const ConvolutionCall& call);

// Bytes that are multiples of where boxes begin in shared memory.
inline constexpr int64_t kBoxAlignment = 1024;

// What a block has of it.
int64_t SharedBytes(const ImplicitGemmTile& tile, const ConvolutionCall& call);
// Elements between two lines of an operand's part, and of the result, in shared memory: so that
// eight lines of 16 bytes lie in different banks.
int64_t PaddedPitch(int64_t line, int64_t element_bytes);

// OK, or Unimplemented with the reason.
absl::Status ImplicitGemmRefusal(const ConvolutionCall& call);

// What a device has of that which bounds a schedule.
struct ImplicitGemmLimits {
  int64_t sms = 1;
  int64_t shared_bytes = 64 << 10;  // of a block
  bool boxes = false;               // whether it loads boxes
};

// The tiles that a call can have, the one that is taken to be the fastest first; at most `most`,
// and at least one. The call passes ImplicitGemmRefusal.
std::vector<ImplicitGemmTile> ImplicitGemmTiles(const ConvolutionCall& call,
                                                const ImplicitGemmLimits& limits, size_t most);

// Cycles of an SM that the fastest of them is taken to need, without its launch, of those that load
// boxes or of the others; kHuge where none fits. They are fitted to operands of 16 bits.
int64_t ImplicitGemmCycles(const ConvolutionCall& call, const ImplicitGemmLimits& limits,
                           bool boxes);

// Cycles of the launch that adds the splits' sums up, without what it moves.
inline constexpr int64_t kAddingLaunchCycles = 1418;

// What the blocks of a tile that loads boxes take where those of other products run beside them, in
// cycles.
struct BoxTileWork {
  ImplicitGemmTile tile;
  int64_t block_cycles = 0;   // of a block that has an SM for itself
  int64_t busy_cycles = 0;    // of one SM that makes all blocks, as many at once as it holds
  int64_t adding_cycles = 0;  // of all SMs, which add the splits' sums up
};
// Of all tiles by boxes that the call can have; none where the limits or BoxRefusal have none.
std::vector<BoxTileWork> BoxTileWorkOf(const ConvolutionCall& call,
                                       const ImplicitGemmLimits& limits);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_OPS_CONVOLUTION_IMPLICIT_GEMM_TILES_H_
