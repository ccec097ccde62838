#include "fusion/cost/along_rows.h"

#include <algorithm>
#include <cstdlib>

#include "fusion/cost/kernel_cost.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/kernel/templates/kernel_template.h"

namespace retrograd {
namespace {

constexpr int64_t kSectorsAClock = 2, kSectorsOfLine = 4;

}  // namespace

bool RunsAlongRows(const KernelIr& ir, const KernelProfile& profile, const IndexExpr& offset) {
  const KernelTemplate& t = TemplateOf(profile.shape.kind);
  if (t.walk != Walk::kColumns || t.holds || t.tiles) return false;
  const AxisMask rows = ir.all_axes() & ~profile.shape.shape.column_axes;
  for (int axis = static_cast<int>(ir.extents.size()) - 1; axis >= 0; --axis) {
    if ((rows >> axis & 1) == 0 || ir.extents[axis] == 1) continue;
    return std::abs(offset.axis_coef(axis)) == 1;
  }
  return false;
}

int64_t FetchedAlongRowsPpm(int64_t alone_ppm, const Schedule& s) {
  const int64_t rows = std::max(s.rows_per_block * s.rows_per_thread, 1);
  return std::max(alone_ppm / rows, kPpm);
}

int64_t SectorsAlongRows(int64_t elements, int64_t column_step_bytes, const Schedule& s,
                         const DeviceSpec& d) {
  const int64_t line = kSectorsOfLine * d.sector_bytes;
  const int64_t lanes = s.threads / std::max(s.rows_per_block, 1);
  const int64_t of_warp = MulDiv(elements, std::clamp<int64_t>(lanes, 1, d.warp), d.warp);
  return MulDiv(of_warp, std::min(column_step_bytes, line), line);
}

int64_t AlongRowsPs(int64_t sectors, const DeviceSpec& d) {
  return MulDiv(sectors, kPsPerSecond / d.sms, Product({kSectorsAClock, d.clock_hz}));
}

}  // namespace retrograd
