#include "fusion/kernel/templates/held_tiles/tile_walk.h"

#include <algorithm>
#include <bit>

#include "fusion/kernel/ir/scale.h"
#include "fusion/kernel/templates/registers.h"

namespace retrograd {
namespace {

// Threads of a team side by side: with vectors whole sectors of 16-bit elements are loaded, and the
// words of a tile of 8-bit results are in different banks.
constexpr int kVectorsSide = 4, kSinglesSide = 8;

// Loads of elements of tiles that run along the axis.
int64_t LoadsAlong(const KernelIr& ir, AxisMask tile, int axis) {
  return std::count_if(ir.instrs.begin(), ir.instrs.end(), [&](const Instr& load) {
    return load.kind == InstrKind::kLoad && load.indirect.empty() && (tile & ~load.axes) == 0 &&
           LaneStride(load.offset, {.axis = axis, .width = 2}) == 1;
  });
}

bool IsFold(const KernelIr& ir, size_t instr) { return FoldedAxes(ir, ir.instrs[instr]) != 0; }

}  // namespace

std::optional<TileAxes> TileAxesOf(const KernelIr& ir, const Folds& folds) {
  AxisMask tile = 0;
  for (AxisMask set : folds.sets) tile |= set;
  if (std::popcount(tile) != 2) return std::nullopt;
  const int first = std::countr_zero(tile), last = std::bit_width(tile) - 1;
  if (ir.extents[first] < 2 || ir.extents[last] < 2) return std::nullopt;
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    if (IsFold(ir, i) && (tile & ~ir.instrs[ir.instrs[i].operands[0]].axes) != 0)
      return std::nullopt;
  }
  const int64_t of_first = LoadsAlong(ir, tile, first), of_last = LoadsAlong(ir, tile, last);
  if (of_first == 0 && of_last == 0) return std::nullopt;
  if (of_first > of_last) return TileAxes{.along = first, .across = last};
  return TileAxes{.along = last, .across = first};
}

TilePart PartOf(AxisMask axes, const TileAxes& tile) {
  const bool along = (axes >> tile.along & 1) != 0, across = (axes >> tile.across & 1) != 0;
  if (along && across) return TilePart::kPoint;
  if (across) return TilePart::kRow;
  return along ? TilePart::kLane : TilePart::kTile;
}

TilePart PartOfReduction(const KernelIr& ir, int reduction, const TileAxes& tile) {
  return PartOf(ir.instrs[reduction].axes, tile);
}

int64_t TileWalk::Count(TilePart part) const {
  switch (part) {
    case TilePart::kRow: return rows;
    case TilePart::kLane: return lanes;
    case TilePart::kTile: return 1;
    case TilePart::kPoint: break;
  }
  return lanes * rows;
}

int64_t TileWalk::PartialLines(TilePart part) const {
  if (part == TilePart::kTile) return parts();
  return part == TilePart::kRow ? blocks_along : blocks_across;
}

int64_t TileWalk::PartialPitch(TilePart part) const {
  if (part == TilePart::kTile) return 1;
  return part == TilePart::kRow ? padded_rows() : padded_lanes();
}

TileWalk TileWalkOf(const KernelIr& ir, const TileAxes& axes, const Schedule& s) {
  TileWalk w;
  w.axes = axes;
  w.vectors = {.axis = axes.along, .width = s.vector_width};
  w.lanes = ir.extents[axes.along];
  w.rows = ir.extents[axes.across];
  w.vectors_side = s.vector_width > 1 ? kVectorsSide : kSinglesSide;
  w.blocks_along = CeilDiv(w.lanes, w.lanes_of_part());
  w.blocks_across = CeilDiv(w.rows, w.rows_of_part());
  w.teams = s.threads / kThreadsOfTileTeam;
  w.turns = CeilDiv(w.parts(), w.teams);
  return w;
}

std::optional<std::vector<int>> HeldLoadsOfTile(const KernelIr& ir, const TileAxes& axes,
                                                const Vectors& vectors) {
  std::vector<int> held;
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    const Instr& load = ir.instrs[i];
    if (load.kind != InstrKind::kLoad || PartOf(load.axes, axes) != TilePart::kPoint) continue;
    if (!load.guards.empty() || !load.indirect.empty()) return std::nullopt;
    if (ComputeType(ir.buffers[load.buffer].dtype) != ComputeType(load.dtype)) return std::nullopt;
    if (LaneStride(load.offset, vectors) != 1 || LoadWidth(ir, static_cast<int>(i), vectors) <= 1) {
      return std::nullopt;
    }
    held.push_back(static_cast<int>(i));
  }
  return held;
}

std::vector<std::vector<int>> SharedTileValues(const KernelIr& ir, const TileAxes& axes,
                                               const Stages& stages) {
  std::vector<bool> read(ir.instrs.size(), false);
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    if (PartOf(ir.instrs[i].axes, axes) != TilePart::kPoint) continue;
    for (int o : ir.instrs[i].operands) read[o] = true;
    for (const Indirect& ind : ir.instrs[i].indirect) read[ind.instr] = true;
  }
  std::vector<std::vector<int>> rounds(stages.row_stages);
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    const Instr& instr = ir.instrs[i];
    if (!read[i] || PartOf(instr.axes, axes) == TilePart::kPoint || IsFold(ir, i)) continue;
    if (stages.stage[i] < 1 || instr.kind == InstrKind::kConstant) continue;
    rounds[stages.stage[i] - 1].push_back(static_cast<int>(i));
  }
  return rounds;
}

int AcrossStoreWidth(const KernelIr& ir, const TileAxes& axes, const Vectors& vectors,
                     const Store& store) {
  if (vectors.width == 1 || store.mode != StoreMode::kStore) return 0;
  const DType from = ir.instrs[store.instr].dtype, to = ir.buffers[store.buffer].dtype;
  if (ComputeType(from) != ComputeType(to)) return 0;
  if (PartOf(ir.instrs[store.instr].axes, axes) != TilePart::kPoint) return 0;
  const auto widest = static_cast<int>(kMaxAccessBytes / SizeBytes(to));
  const int width = StoreWidth(ir, store, {.axis = axes.across, .width = widest});
  return width >= kRowsOfTileThread && ir.extents[axes.across] % width == 0 ? width : 0;
}

int64_t AcrossPitch(const TileWalk& walk) { return walk.padded_rows() + WideTiles::kPad; }

int64_t SharedBytesOfTile(const KernelIr& ir, const TileWalk& walk, const Stages& stages) {
  int64_t bytes = 0;
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    if (!IsFold(ir, i)) continue;
    const TilePart part = PartOfReduction(ir, static_cast<int>(i), walk.axes);
    const int64_t size = SizeBytes(AccumulatorType(ir.instrs[i].dtype));
    bytes += SharedArrayBytes(walk.PartialLines(part) * walk.PartialPitch(part), size) +
             SharedArrayBytes(walk.Count(part), size);
  }
  for (const std::vector<int>& values : SharedTileValues(ir, walk.axes, stages)) {
    for (int i : values) {
      bytes += SharedArrayBytes(walk.Count(PartOf(ir.instrs[i].axes, walk.axes)),
                                SizeBytes(ComputeType(ir.instrs[i].dtype)));
    }
  }
  for (const Store& store : ir.stores) {
    if (AcrossStoreWidth(ir, walk.axes, walk.vectors, store) == 0) continue;
    bytes += SharedArrayBytes(walk.padded_lanes() * AcrossPitch(walk),
                              SizeBytes(ir.buffers[store.buffer].dtype));
  }
  return bytes;
}

int64_t ShufflesOfTile(const KernelIr& ir, const TileAxes& axes, int width) {
  const int side = std::countr_zero(static_cast<unsigned>(width > 1 ? kVectorsSide : kSinglesSide));
  const int all = std::countr_zero(static_cast<unsigned>(kThreadsOfTileTeam));
  int64_t shuffles = 0;
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    if (!IsFold(ir, i)) continue;
    switch (PartOfReduction(ir, static_cast<int>(i), axes)) {
      case TilePart::kRow: shuffles += kRowsOfTileThread * side; break;
      case TilePart::kLane: shuffles += int64_t{width} * (all - side); break;
      default: shuffles += all;
    }
  }
  return shuffles;
}

}  // namespace retrograd
