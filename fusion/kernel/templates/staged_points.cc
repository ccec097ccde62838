#include "fusion/kernel/templates/staged_points.h"

namespace retrograd {

int64_t StagedPointBytes(const KernelIr& ir, const KernelProfile& p, const Schedule& s, int64_t) {
  if (!StagesPoints(s)) return 0;
  int64_t bytes = 0;
  for (const PointRows& rows : p.point_rows) {
    bytes +=
        SharedArrayBytes(ElementsOf(rows, s.threads), SizeBytes(ir.buffers[rows.buffer].dtype));
  }
  return bytes;
}

}  // namespace retrograd
