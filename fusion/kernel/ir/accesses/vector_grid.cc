#include "fusion/kernel/ir/accesses/vector_grid.h"

#include <algorithm>

#include "fusion/kernel/ir/scale.h"

namespace retrograd {
namespace {

// Where vectors must begin for the access to be aligned, if there is such a place in every row.
std::optional<IndexExpr> PhaseOf(const Buffer& buffer, const IndexExpr& offset, int axis,
                                 int width) {
  if (offset.axis_coef(axis) != 1) return std::nullopt;
  IndexExpr phase = offset;
  phase.AddScaled(IndexExpr::Axis(axis), -1);
  if ((phase.axes() >> axis & 1) != 0) return std::nullopt;
  const int64_t bytes = std::min<int64_t>(width * SizeBytes(buffer.dtype), kMaxAccessBytes);
  if (buffer.alignment % bytes != 0) return std::nullopt;
  return KnownMultiple(phase, {axis, width}) % width == 0 ? IndexExpr() : phase;
}

// The access that moves most bytes of those that were seen; of equal ones the first.
struct Widest {
  int64_t bytes = 0;
  IndexExpr phase;

  void See(const KernelIr& ir, const Buffer& buffer, const IndexExpr& offset, int axis, int width) {
    const int64_t moved = ir.Points(offset.axes()) * SizeBytes(buffer.dtype);
    if (moved <= bytes) return;
    std::optional<IndexExpr> its = PhaseOf(buffer, offset, axis, width);
    if (!its.has_value()) return;
    bytes = moved;
    phase = *std::move(its);
  }
};

// Stores decide: a load that is out of step with the vectors can be put together from two.
IndexExpr GridPhase(const KernelIr& ir, int axis, int width) {
  Widest widest;
  for (const Store& s : ir.stores) widest.See(ir, ir.buffers[s.buffer], s.offset, axis, width);
  if (widest.bytes > 0) return widest.phase;
  for (const Instr& load : ir.instrs) {
    if (load.kind != InstrKind::kLoad || !load.indirect.empty()) continue;
    widest.See(ir, ir.buffers[load.buffer], load.offset, axis, width);
  }
  return widest.phase;
}

}  // namespace

bool HasEnds(const KernelIr& ir, int width) {
  const int axis = FastestAxis(ir);
  return width > 1 && axis >= 0 && ir.extents[axis] % width != 0;
}

Vectors VectorsOf(const KernelIr& ir, int width) {
  Vectors vectors{.axis = FastestAxis(ir), .width = width, .phase = {}};
  if (!HasEnds(ir, width)) return vectors;
  vectors.phase = GridPhase(ir, vectors.axis, width);
  vectors.shifts = true;
  return vectors;
}

int64_t MostVectors(const KernelIr& ir, int width) {
  const int axis = FastestAxis(ir);
  return axis < 0 ? 1 : ir.extents[axis] / width;
}

int64_t MostEnds(const KernelIr& ir, int width) {
  return HasEnds(ir, width) ? ir.extents[FastestAxis(ir)] % width + width : 0;
}

int64_t PassPlaces(const KernelIr& ir, int width) {
  const int64_t points = ir.Points(ir.all_axes());
  if (!HasEnds(ir, width)) return CeilDiv(points, int64_t{width});
  const int64_t rows = points / ir.extents[FastestAxis(ir)];
  return rows * (MostVectors(ir, width) + MostEnds(ir, width));
}

}  // namespace retrograd
