#include "fusion/kernel/ir/accesses/pass_columns.h"

#include <algorithm>
#include <vector>

#include "fusion/kernel/ir/accesses/vector_access.h"

namespace retrograd {
namespace {

bool VariesAlongFastest(const KernelIr& ir, const Instr& instr) {
  const int fastest = FastestAxis(ir);
  return fastest >= 0 && (instr.axes >> fastest & 1) != 0;
}

int64_t LoadedBytes(const KernelIr& ir, const PassColumns& columns) {
  int64_t bytes = 0;
  for (const Instr& load : ir.instrs) {
    if (load.kind != InstrKind::kLoad || !columns.Keeps(load)) continue;
    if (VariesAlongFastest(ir, load)) bytes += SizeBytes(ir.buffers[load.buffer].dtype);
  }
  return bytes;
}

int64_t WordsForRows(const KernelIr& ir, const PassColumns& columns) {
  std::vector<bool> needed(ir.instrs.size(), false);
  for (const Instr& user : ir.instrs) {
    if (columns.Keeps(user)) continue;
    for (int o : user.operands) needed[o] = true;
    for (const Indirect& ind : user.indirect) needed[ind.instr] = true;
  }
  int64_t words = 0;
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    const Instr& instr = ir.instrs[i];
    if (!needed[i] || !columns.Keeps(instr) || !VariesAlongFastest(ir, instr)) continue;
    words += SizeBytes(ComputeType(instr.dtype)) > 4 ? 2 : 1;
  }
  return words;
}

// The axes among these that are inside of all others.
AxisMask InnerOf(const KernelIr& ir, AxisMask axes) {
  AxisMask inner = 0;
  for (size_t a = ir.extents.size(); a-- > 0 && (axes >> a & 1) != 0;) inner |= AxisMask{1} << a;
  return inner;
}

// Axes of one position belong to any.
AxisMask WithShortAxes(const KernelIr& ir, AxisMask axes) {
  for (size_t a = 0; a < ir.extents.size(); ++a) {
    if (ir.extents[a] == 1) axes |= AxisMask{1} << a;
  }
  return axes;
}

PassColumns ColumnsAlong(const KernelIr& ir, AxisMask axes) {
  PassColumns columns{.axes = WithShortAxes(ir, axes)};
  const AxisMask inner = InnerOf(ir, columns.axes);
  columns.inner = std::max<int64_t>(ir.Points(inner), 1);
  columns.outer = std::max<int64_t>(ir.Points(columns.axes & ~inner), 1);
  columns.rows = ir.Points(ir.all_axes() & ~columns.axes);
  columns.loaded_bytes = LoadedBytes(ir, columns);
  return columns;
}

}  // namespace

PassColumns PassColumnsOf(const KernelIr& ir) {
  PassColumns best;
  if (ir.scatter || ir.Points(ir.all_axes()) == 0) return best;
  for (const Instr& load : ir.instrs) {
    if (load.kind != InstrKind::kLoad || !VariesAlongFastest(ir, load)) continue;
    const PassColumns here = ColumnsAlong(ir, load.axes);
    if (here.rows <= 1 || here.loaded_bytes < best.loaded_bytes) continue;
    if (here.loaded_bytes > best.loaded_bytes || here.rows > best.rows) best = here;
  }
  if (best.axes == 0) return best;
  best.words = WordsForRows(ir, best);
  best.stores = std::count_if(ir.stores.begin(), ir.stores.end(),
                              [&](const Store& s) { return best.Keeps(ir.instrs[s.instr]); });
  return best;
}

}  // namespace retrograd
