// Schedules of the kernels that make matmuls of any sizes and alignments, a block for each tile of
// each matrix of a batch: how a tile is cut, and how operands get into shared memory.
//
// Small matrices are one tile each, and their sums one step: a block loads all of two operands,
// multiplies them and ends, and the blocks of an SM hide each other's waits. Lines of operands that
// do not begin at multiples of 16 bytes are moved 16 bytes at a time all the same.
#ifndef RETROGRAD_FUSION_OPS_MATMUL_MATMUL_TILES_H_
#define RETROGRAD_FUSION_OPS_MATMUL_MATMUL_TILES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "fusion/ops/matmul/matmul_call.h"

namespace retrograd {

// A block makes rows x columns sums, `depth` terms at a time, by warps that share the tile; all are
// multiples of 16. With two stages the next terms are on their way while these are multiplied.
struct MatMulTile {
  int rows = 64, columns = 64, depth = 64;
  int stages = 2;
  int warp_rows = 2, warp_columns = 2;

  int warps() const { return warp_rows * warp_columns; }
  friend bool operator==(const MatMulTile&, const MatMulTile&) = default;
  std::string Print() const;  // "64 x 64 x 64 tiles by 2 x 2 warps, 2 stages"
};

// Bytes that are known to divide the addresses of the stored values.
struct MatMulAlignments {
  int64_t a = 16, b = 16, d = 16;
};

// What a device has of that which bounds a schedule.
struct MatMulTileLimits {
  int64_t sms = 1;
  int64_t shared_bytes = 64 << 10;  // of a block
};

// OK, or Unimplemented with the reason: other types than bf16, fp16, fp32 and fp64, matrices
// without neighbours along rows or columns, extents beyond what a launch takes.
absl::Status TiledMatMulRefusal(const MatMulCall& call);

// Up to `most` tiles of a call that passes TiledMatMulRefusal and has elements and terms, those
// first that are taken to be the fastest.
std::vector<MatMulTile> MatMulTilesFor(const MatMulCall& call, const MatMulTileLimits& limits,
                                       size_t most);

int64_t BlocksOf(const MatMulTile& tile, const MatMulCall& call);

// How a step's part of an operand lies in shared memory: lines of neighbours in the stored value,
// with a gap behind each, so that eight lines of 16 bytes lie in different banks.
struct TilePart {
  bool across = false;  // lines run across the sum, else along it
  int64_t lines = 0, width = 0, pitch = 0;
  int64_t elements() const { return lines * pitch; }
};
TilePart TilePartOfA(const MatMulTile& tile, const MatMulCall& call);
TilePart TilePartOfB(const MatMulTile& tile, const MatMulCall& call);

// Whether a matrix of so many columns has neighbours along its rows, else along its columns. Bytes
// that divide the addresses at which the lines of neighbours of all matrices of a batch begin, at
// most 16; and whether that is 16.
bool RunsAlongRows(const MatrixOperand& matrix, int64_t columns);
int64_t LineAlignment(const MatrixOperand& matrix, int64_t columns, DType dtype, int64_t alignment);
bool LinesAreAligned(const MatrixOperand& matrix, int64_t columns, DType dtype, int64_t alignment);

// The tile of the result in shared memory, as it lies in the stored value: in lines of its columns,
// else of its rows. Elements from one line to the next, with room for lines that begin anywhere; in
// all; their dtype: that of sums which are added to what is there, else the result's. And bytes of
// a block, whose operands make room for it.
bool TileIsStoredDown(const MatMulCall& call);
int64_t TileImagePitch(const MatMulTile& tile, const MatMulCall& call);
int64_t TileImageElements(const MatMulTile& tile, const MatMulCall& call);
DType TileImageDType(const MatMulCall& call);
int64_t TileSharedBytes(const MatMulTile& tile, const MatMulCall& call);

// In which products are added up: fp64 of fp64, else fp32.
DType TileSumDType(const MatMulCall& call);

// Steps of a tile's sums.
int64_t TileSteps(const MatMulTile& tile, const MatMulCall& call);

// Whether a kernel of tiles may be faster than a library's, on a device of so many multiprocessors:
// lines of a matrix of a batch begin anywhere, or tiles hold whole matrices of a batch; of a single
// product, lines begin at no multiples of 4 bytes, and its tiles keep half of the device busy.
bool IsWorthTiles(const MatMulCall& call, const MatMulAlignments& known, int64_t sms);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_OPS_MATMUL_MATMUL_TILES_H_
