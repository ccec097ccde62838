// Schedules of the kernels that multiply groups: how a block's tile is cut, and how wide its
// accesses are.
//
// Blocks are launched for as many tiles as groups of any sizes can have, since only the device
// knows the sizes; a block without a tile ends.
#ifndef RETROGRAD_FUSION_OPS_GROUPED_MATMUL_GROUPED_MATMUL_TILES_H_
#define RETROGRAD_FUSION_OPS_GROUPED_MATMUL_GROUPED_MATMUL_TILES_H_

#include <string>

#include "absl/status/status.h"
#include "fusion/ops/grouped_matmul/grouped_matmul_call.h"

namespace retrograd {

// A block makes rows x columns sums, over `depth` products at a time, of which `stages` parts are
// on their way or in shared memory. Its warps share the tile.
struct GroupedTile {
  int rows = 64, columns = 64, depth = 64;
  int stages = 4;
  int warp_rows = 2, warp_columns = 2;

  int warps() const { return warp_rows * warp_columns; }
  friend bool operator==(const GroupedTile&, const GroupedTile&) = default;
  std::string Print() const;  // "64 x 64 x 64 tiles by 2 x 2 warps, 4 stages"
};

// What a device has of that which bounds a schedule.
struct GroupedLimits {
  int64_t sms = 1;
  int64_t shared_bytes = 64 << 10;  // of a block
};

// Elements that a thread moves at once.
struct GroupedVectors {
  int a = 1, b = 1, d = 1;
};

// Bytes that are known to divide the addresses of the stored values.
struct GroupedAlignments {
  int64_t a = 0, b = 0, d = 0;
};

// OK, or Unimplemented with the reason.
absl::Status GroupedMatMulRefusal(const GroupedMatMulCall& call);

// Of a call that passes GroupedMatMulRefusal.
GroupedTile GroupedTileFor(const GroupedMatMulCall& call, const GroupedLimits& limits);
GroupedVectors GroupedVectorsFor(const GroupedMatMulCall& call, const GroupedAlignments& known);

// Tiles along the rows that groups have at most, and the rows behind the last one: of all groups
// together where the rows are in groups, else of one. Tiles along the columns. Blocks in all.
int64_t RowTiles(const GroupedTile& tile, const GroupedMatMulCall& call);
int64_t ColumnTiles(const GroupedTile& tile, const GroupedMatMulCall& call);
int64_t BlocksOf(const GroupedTile& tile, const GroupedMatMulCall& call);

// How a part of an operand lies in shared memory: lines of neighbours in the stored value, with a
// gap behind each, so that eight lines of 16 bytes lie in different banks.
struct SharedPart {
  bool across = false;  // lines run across the sum, else along it
  int64_t lines = 0, width = 0, pitch = 0;
  int64_t elements() const { return lines * pitch; }
};
SharedPart SharedPartOfA(const GroupedTile& tile, const GroupedMatMulCall& call);
SharedPart SharedPartOfB(const GroupedTile& tile, const GroupedMatMulCall& call);

// Elements from one line of a tile's sums in shared memory to the next.
int64_t SumsPitch(const GroupedTile& tile, const GroupedMatMulCall& call);
int64_t SharedBytes(const GroupedTile& tile, const GroupedMatMulCall& call);

// In which products are added up: fp64 of or into fp64, else fp32.
DType SumDType(const GroupedMatMulCall& call);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_OPS_GROUPED_MATMUL_GROUPED_MATMUL_TILES_H_
