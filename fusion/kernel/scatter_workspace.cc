#include "fusion/kernel/scatter_workspace.h"

#include "fusion/kernel/schedule.h"

namespace retrograd {

int SortPasses(int64_t table_rows) {
  int passes = 1;
  while ((table_rows >> (kSortDigitBits * passes)) != 0) ++passes;
  return passes;
}

int ScatterLaunches(const KernelIr& ir) {
  const int64_t rows = ir.Points(ir.scatter->row_axes);
  const int sort = rows == 0 ? 0 : 3 * SortPasses(ir.scatter->table_rows);
  return sort + (ir.Points(ir.all_axes()) == 0 ? 2 : 3);
}

ScatterWorkspace ScatterWorkspaceOf(const KernelIr& ir) {
  ScatterWorkspace w;
  const Scatter& scatter = *ir.scatter;
  w.rows = ir.Points(scatter.row_axes);
  bool before = true;
  for (size_t a = 0; a < ir.extents.size(); ++a) {
    if ((scatter.row_axes >> a & 1) != 0) {
      before = false;
    } else {
      (before ? w.outer : w.inner) *= ir.extents[a];
    }
  }
  w.pieces = (w.rows + kSortPiece - 1) / kSortPiece;
  w.chunks = (w.rows + kScatterChunk - 1) / kScatterChunk;
  auto place = [&](int64_t bytes) {
    const int64_t at = w.bytes;
    w.bytes += (bytes + 15) / 16 * 16;
    return at;
  };
  w.starts = place(4 * (scatter.table_rows + 1));
  w.order = place(4 * w.rows);
  w.keys = place(4 * w.rows);
  w.spare_order = place(4 * w.rows);
  w.spare_keys = place(4 * w.rows);
  w.counts = place((int64_t{4} << kSortDigitBits) * w.pieces);
  w.partials = place(w.outer * w.chunks * 2 * w.inner *
                     SizeBytes(AccumulatorType(ir.buffers[scatter.buffer].dtype)));
  return w;
}

}  // namespace retrograd
