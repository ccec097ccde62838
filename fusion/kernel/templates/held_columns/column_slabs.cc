#include "fusion/kernel/templates/held_columns/column_slabs.h"

#include <algorithm>

#include "fusion/kernel/ir/accesses/transposed.h"
#include "fusion/kernel/ir/scale.h"

namespace retrograd {
namespace {

constexpr int kMaxWidth = 8;
// The blocks of a cluster begin at multiples of so many rows: of whole accesses of 16 bytes.
constexpr int64_t kPartRows = 16;
// Results that a thread packs into one access of a tile, and the elements between its columns.
constexpr int kTileRows = WideTiles::kRows, kTilePad = WideTiles::kPad;

bool VariesOver(const KernelIr& ir, AxisMask axes, AxisMask all) {
  for (size_t a = 0; a < ir.extents.size(); ++a) {
    if ((all >> a & 1) != 0 && ir.extents[a] > 1 && (axes >> a & 1) == 0) return false;
  }
  return true;
}

bool CanBeHeld(const KernelIr& ir, int instr, const Vectors& vectors) {
  const Instr& load = ir.instrs[instr];
  const Buffer& buffer = ir.buffers[load.buffer];
  if (!load.guards.empty() || !load.indirect.empty()) return false;
  if (ComputeType(buffer.dtype) != ComputeType(load.dtype)) return false;
  if (vectors.width == 1) return true;
  return LaneStride(load.offset, vectors) == 1 && LoadWidth(ir, instr, vectors) > 1;
}

}  // namespace

int ColumnAxis(const KernelIr& ir, AxisMask folded) {
  const int fastest = FastestAxis(ir);
  if (fastest < 0 || (folded >> fastest & 1) == 0) return fastest;
  const std::optional<int> axis = TransposedLoadAxis(ir);
  return axis.has_value() && (folded >> *axis & 1) == 0 ? *axis : -1;
}

int WidestOfColumns(const KernelIr& ir, int axis) {
  int width = kMaxWidth, widest = 1;
  while (ir.extents[axis] % width != 0) width /= 2;
  for (size_t i = 0; i < ir.instrs.size() && width > 1; ++i) {
    if (ir.instrs[i].kind != InstrKind::kLoad) continue;
    widest = std::max(widest, LoadWidth(ir, static_cast<int>(i), {.axis = axis, .width = width}));
  }
  return widest;
}

int TeamsOf(const ColumnSlab& slab) {
  return slab.lanes * slab.thread_rows / std::max(kThreadsOfTeam, slab.lanes);
}

ColumnSlab SlabOf(const KernelIr& ir, const RowsAndColumns& shape, const Schedule& s) {
  ColumnSlab slab;
  slab.vectors = {.axis = ColumnAxis(ir, shape.column_axes), .width = s.vector_width};
  slab.lanes = s.threads / s.rows_per_block;
  slab.thread_rows = s.rows_per_block;
  slab.rows_at_once = s.rows_per_thread;
  slab.columns = shape.rows;
  slab.rows = shape.columns;
  slab.row_axes = shape.column_axes;
  slab.column_axes = shape.row_axes;
  const int64_t part = CeilDiv(slab.rows, s.cluster);
  slab.rows_of_block = s.cluster == 1 ? part : CeilDiv(part, kPartRows) * kPartRows;
  slab.batches = CeilDiv(slab.rows_of_block, slab.rows_of_batch());
  slab.slabs = std::max<int64_t>(CeilDiv(slab.columns, slab.columns_of_slab()), 1);
  return slab;
}

std::optional<std::vector<int>> HeldLoads(const KernelIr& ir, const RowsAndColumns& shape,
                                          const Vectors& vectors) {
  std::vector<int> held;
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    const Instr& load = ir.instrs[i];
    if (load.kind != InstrKind::kLoad || (load.axes & shape.column_axes) == 0) continue;
    if ((load.axes >> vectors.axis & 1) == 0) continue;  // of rows alone: few, and in the caches
    if (!CanBeHeld(ir, static_cast<int>(i), vectors)) return std::nullopt;
    held.push_back(static_cast<int>(i));
  }
  if (held.empty()) return std::nullopt;
  return held;
}

int64_t HeldBytesOfElement(const KernelIr& ir, const std::vector<int>& loads) {
  int64_t bytes = 0;
  for (int i : loads) bytes += SizeBytes(ir.buffers[ir.instrs[i].buffer].dtype);
  return bytes;
}

int TileStoreWidth(const KernelIr& ir, const ColumnSlab& slab, const Store& store) {
  const int fastest = FastestAxis(ir);
  if (fastest < 0 || (slab.row_axes >> fastest & 1) == 0 || slab.rows_at_once != kTileRows)
    return 0;
  const DType from = ir.instrs[store.instr].dtype, to = ir.buffers[store.buffer].dtype;
  if (store.mode != StoreMode::kStore || ComputeType(from) != ComputeType(to)) return 0;
  if (!VariesOver(ir, ir.instrs[store.instr].axes, ir.all_axes())) return 0;
  const int width = WideStoreWidth(ir, store);
  const bool fills =
      width >= kTileRows && ir.extents[fastest] % width == 0 && slab.rows_of_batch() % width == 0;
  return fills ? width : 0;
}

int64_t TilePitch(const ColumnSlab& slab) { return slab.rows_of_batch() + kTilePad; }

}  // namespace retrograd
