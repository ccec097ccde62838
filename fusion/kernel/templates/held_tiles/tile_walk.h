// Tiles: what a kernel has at all positions of the two axes that its reductions fold, both or one
// of them. A block has a tile of its own, whose elements may stay in the registers of its threads
// from the first stage to the last. How a schedule of held_tiles goes through a tile, for prices
// and for the emitter.
//
// Lanes lie along the axis in which loads run, rows along the other one.
#ifndef RETROGRAD_FUSION_KERNEL_TEMPLATES_HELD_TILES_TILE_WALK_H_
#define RETROGRAD_FUSION_KERNEL_TEMPLATES_HELD_TILES_TILE_WALK_H_

#include <optional>
#include <vector>

#include "fusion/kernel/ir/accesses/transposed.h"
#include "fusion/kernel/ir/accesses/vector_access.h"
#include "fusion/kernel/templates/folds.h"
#include "fusion/kernel/templates/schedule.h"

namespace retrograd {

// The two axes of a tile: `along` the one in which loads run.
struct TileAxes {
  int along = -1, across = -1;
  AxisMask mask() const { return AxisMask{1} << along | AxisMask{1} << across; }
};

// Nullopt: the reductions fold other axes than two, or no load runs along one of them.
std::optional<TileAxes> TileAxesOf(const KernelIr& ir, const Folds& folds);

// What an instruction of the kernel has one value of.
enum class TilePart : uint8_t {
  kPoint,  // each element of a tile
  kRow,    // each row: it varies over the axis across alone
  kLane,   // each position along
  kTile,   // the whole tile
};
TilePart PartOf(AxisMask axes, const TileAxes& tile);
// Of a reduction's results.
TilePart PartOfReduction(const KernelIr& ir, int reduction, const TileAxes& tile);

// Threads that exchange what they fold by shuffles, whatever the warp.
inline constexpr int kThreadsOfTileTeam = 32;
// Neighbouring rows that a thread evaluates in straight-line code.
inline constexpr int kRowsOfTileThread = WideTiles::kRows;

struct TileWalk {
  TileAxes axes;
  Vectors vectors;       // elements of a thread in each row, side by side
  int64_t lanes = 0;     // positions along
  int64_t rows = 0;      // positions across
  int vectors_side = 1;  // threads of a team side by side; the others have other rows
  int64_t blocks_along = 0, blocks_across = 0;  // teams' parts of a tile, in each direction
  int teams = 1;                                // of a block
  int64_t turns = 1;                            // parts that a team goes through

  int width() const { return vectors.width; }
  int groups() const { return kThreadsOfTileTeam / vectors_side; }  // of rows, of a team
  int64_t lanes_of_part() const { return int64_t{vectors_side} * vectors.width; }
  int64_t rows_of_part() const { return int64_t{groups()} * kRowsOfTileThread; }
  int64_t padded_lanes() const { return blocks_along * lanes_of_part(); }
  int64_t padded_rows() const { return blocks_across * rows_of_part(); }
  int64_t parts() const { return blocks_along * blocks_across; }
  // Values that a tile has of such a kind.
  int64_t Count(TilePart part) const;
  // Partial results that threads leave of a reduction of the kind, each of which is a line of one
  // value for each of its results.
  int64_t PartialLines(TilePart part) const;
  int64_t PartialPitch(TilePart part) const;
};

TileWalk TileWalkOf(const KernelIr& ir, const TileAxes& axes, const Schedule& schedule);

// The loads of elements of tiles, if all can be kept as they lie in memory.
std::optional<std::vector<int>> HeldLoadsOfTile(const KernelIr& ir, const TileAxes& axes,
                                                const Vectors& vectors);

// By round of reductions: values of rows, lanes and tiles that follow from its results, and that
// elements need. One thread makes each, and the others take it from shared memory. Results of
// reductions themselves are not listed.
std::vector<std::vector<int>> SharedTileValues(const KernelIr& ir, const TileAxes& axes,
                                               const Stages& stages);

// Whether a store's elements lie side by side along the rows' axis, so that its results pass
// through a tile in shared memory and are stored by accesses of so many elements. 0: they do not.
int AcrossStoreWidth(const KernelIr& ir, const TileAxes& axes, const Vectors& vectors,
                     const Store& store);
// Elements of such a tile from one lane to the next: threads meet other banks.
int64_t AcrossPitch(const TileWalk& walk);

// Shared memory that a block declares.
int64_t SharedBytesOfTile(const KernelIr& ir, const TileWalk& walk, const Stages& stages);

// Shuffles of a thread in each turn.
int64_t ShufflesOfTile(const KernelIr& ir, const TileAxes& axes, int width);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_TEMPLATES_HELD_TILES_TILE_WALK_H_
