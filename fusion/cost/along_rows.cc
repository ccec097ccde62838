#include "fusion/cost/along_rows.h"

#include <algorithm>
#include <cstdlib>

#include "fusion/cost/kernel_cost.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/kernel/templates/kernel_template.h"

namespace retrograd {
namespace {

constexpr int64_t kBytesAClock = 64, kLineBytes = 128;

}  // namespace

AlongRows RunAlongRows(const KernelIr& ir, const KernelProfile& profile, const IndexExpr& offset,
                       int64_t step, int64_t element_bytes) {
  const KernelTemplate& t = TemplateOf(profile.shape.kind);
  if (t.walk != Walk::kColumns || t.holds || t.tiles || step <= 1) return {};
  const AxisMask row_axes = ir.all_axes() & ~profile.shape.shape.column_axes;
  int64_t rows = 1;
  for (int axis = static_cast<int>(ir.extents.size()) - 1; axis >= 0; --axis) {
    if ((row_axes >> axis & 1) == 0 || ir.extents[axis] == 1) continue;
    if (std::abs(offset.axis_coef(axis)) != rows) break;
    rows *= ir.extents[axis];
  }
  if (rows <= 1) return {};
  return {.rows = rows, .column_step_bytes = step * element_bytes};
}

int64_t FetchedAlongRowsPpm(int64_t alone_ppm, const AlongRows& along, const Schedule& s) {
  const int64_t at_once = std::max(s.rows_per_block * s.rows_per_thread, 1);
  return std::max(alone_ppm / std::clamp<int64_t>(at_once, 1, along.rows), kPpm);
}

int64_t SectorsAlongRows(int64_t elements, int64_t element_bytes, const AlongRows& along,
                         const Schedule& s, const DeviceSpec& d) {
  const int64_t lanes = std::clamp<int64_t>(s.threads / std::max(s.rows_per_block, 1), 1, d.warp);
  const int64_t of_column = CeilDiv(d.warp / lanes * element_bytes, d.sector_bytes);
  const int64_t all = MulDiv(elements, Product({lanes, of_column}), d.warp);
  const int64_t line = std::max(kLineBytes, d.sector_bytes);
  return MulDiv(all, std::min(along.column_step_bytes, line), line);
}

int64_t AlongRowsPs(int64_t sectors, const DeviceSpec& d) {
  return MulDiv(Product({sectors, d.sector_bytes}), kPsPerSecond / d.sms,
                Product({kBytesAClock, d.clock_hz}));
}

}  // namespace retrograd
