#include "fusion/kernel/templates/folds.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "fusion/kernel/ir/accesses/vector_access.h"

namespace retrograd {
namespace {

// One sum for each column, whatever was folded to make what it adds up.
bool SumsEachColumn(const Instr& instr, AxisMask folded, AxisMask long_columns) {
  return folded != 0 && (folded & long_columns) == 0 && (long_columns & ~instr.axes) == 0;
}

}  // namespace

Folds ReadFolds(const KernelIr& ir) {
  Folds folds{.fastest = FastestAxis(ir)};
  for (size_t a = 0; a < ir.extents.size(); ++a) {
    if (ir.extents[a] != 1) folds.long_axes |= AxisMask{1} << a;
  }
  for (const Instr& instr : ir.instrs) {
    const AxisMask folded = FoldedAxes(ir, instr);
    if (folded == 0) continue;
    if (std::find(folds.sets.begin(), folds.sets.end(), folded) == folds.sets.end()) {
      folds.sets.push_back(folded);
    }
  }
  return folds;
}

Classification Recognised(const KernelIr& ir, Template id, AxisMask rows, AxisMask columns) {
  return {.feasible = true,
          .kind = id,
          .shape = {.row_axes = rows,
                    .column_axes = columns,
                    .rows = ir.Points(rows),
                    .columns = ir.Points(columns)}};
}

Classification Refused(std::string reason) { return {.reason = std::move(reason)}; }

std::string ColumnResultMisused(const KernelIr& ir, AxisMask columns, AxisMask long_axes) {
  std::vector<bool> late(ir.instrs.size(), false), along(ir.instrs.size(), false);
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    const Instr& instr = ir.instrs[i];
    bool from_late = false;
    for (int o : instr.operands) {
      from_late = from_late || late[o];
      along[i] = along[i] || along[o];
    }
    for (const Indirect& ind : instr.indirect) from_late = from_late || late[ind.instr];
    const AxisMask folded = FoldedAxes(ir, instr);
    if (folded != 0 && from_late) {
      return absl::StrCat("v", i, " folds what depends on a column sum of the same kernel");
    }
    if (from_late && along[i]) {
      return absl::StrCat("v", i, " joins a row sum with a column sum of the same kernel");
    }
    const bool each_column = SumsEachColumn(instr, folded, columns & long_axes);
    along[i] = !each_column && (along[i] || (folded & columns) != 0);
    late[i] = from_late || (folded != 0 && (folded & columns) == 0);
    if (late[i] && (instr.axes & long_axes & ~columns) != 0) {
      return absl::StrCat("v", i, " spreads a column sum of the same kernel over its rows");
    }
  }
  return "";
}

}  // namespace retrograd
