// Which template walks an IR, from the sets of axes that its reductions fold:
//   none                                   pointwise, or transpose if a load runs along another
//   axis one, with the fastest axis             row_reduction one, without the fastest axis
//   column_reduction one with it, and all the others        row_column
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "fusion/kernel/ir/vector_access.h"
#include "fusion/kernel/templates/schedule.h"
#include "fusion/kernel/templates/transposed.h"

namespace retrograd {
namespace {

// Columns of a row_column kernel live in the registers of one block.
constexpr int64_t kMaxRowColumns = int64_t{1024} * kMaxPersistentElements;

Classification Infeasible(std::string reason) { return {.reason = std::move(reason)}; }

std::string AxisList(AxisMask axes) {
  std::string out;
  for (int a = 0; a < kMaxAxes; ++a) {
    if (axes >> a & 1) absl::StrAppend(&out, out.empty() ? "a" : ",a", a);
  }
  return out;
}

AxisMask LongAxes(const KernelIr& ir) {
  AxisMask axes = 0;
  for (size_t a = 0; a < ir.extents.size(); ++a) {
    if (ir.extents[a] != 1) axes |= AxisMask{1} << a;
  }
  return axes;
}

Classification WithShape(const KernelIr& ir, Template kind, AxisMask rows, AxisMask columns) {
  return {.feasible = true,
          .kind = kind,
          .shape = {.row_axes = rows,
                    .column_axes = columns,
                    .rows = ir.Points(rows),
                    .columns = ir.Points(columns)}};
}

// One sum for each column, whatever was folded to make what it adds up.
bool SumsEachColumn(const Instr& instr, AxisMask folded, AxisMask long_columns) {
  return folded != 0 && (folded & long_columns) == 0 && (long_columns & ~instr.axes) == 0;
}

// What follows a column reduction exists once all rows have been walked, so it may vary over
// columns only and feed no other reduction.
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

Classification ClassifyReductions(const KernelIr& ir, const std::vector<AxisMask>& folds) {
  const AxisMask long_axes = LongAxes(ir);
  const AxisMask fastest = AxisMask{1} << FastestAxis(ir);
  if (folds.size() > 2) return Infeasible("its reductions fold three or more sets of axes");
  const AxisMask a = folds[0];
  if (folds.size() == 1) {
    if ((a & fastest) != 0) {
      return WithShape(ir, Template::kRowReduction, ir.all_axes() & ~a, a);
    }
    const AxisMask columns = ir.all_axes() & ~a;
    if (std::string why = ColumnResultMisused(ir, columns, long_axes); !why.empty()) {
      return Infeasible(why);
    }
    return WithShape(ir, Template::kColumnReduction, a, columns);
  }
  const AxisMask across = (a & fastest) != 0 ? a : folds[1];
  const AxisMask down = (a & fastest) != 0 ? folds[1] : a;
  if ((across & down) != 0 || (across | down) != long_axes) {
    return Infeasible(absl::StrCat("its reductions fold ", AxisList(across), " and ",
                                   AxisList(down), ", which are no rows and columns of ",
                                   AxisList(long_axes)));
  }
  const int64_t columns = ir.Points(across);
  if (columns > kMaxRowColumns) {
    return Infeasible(absl::StrCat("rows of ", columns, " elements are wider than the ",
                                   kMaxRowColumns, " column sums that a block can hold"));
  }
  if (std::string why = ColumnResultMisused(ir, across, long_axes); !why.empty()) {
    return Infeasible(why);
  }
  return WithShape(ir, Template::kRowColumn, ir.all_axes() & ~across, across);
}

}  // namespace

Classification Classify(const KernelIr& ir) {
  if (ir.scatter.has_value()) {
    for (const Instr& instr : ir.instrs) {
      if (instr.kind != InstrKind::kReduce) continue;
      return Infeasible(
          "a scatter reads its source point by point: no reduction may stand before it");
    }
    const AxisMask rows = ir.scatter->row_axes;
    return WithShape(ir, Template::kScatterAdd, rows, ir.all_axes() & ~rows);
  }
  std::vector<AxisMask> folds;
  for (const Instr& instr : ir.instrs) {
    const AxisMask folded = FoldedAxes(ir, instr);
    if (folded == 0) continue;
    if (std::find(folds.begin(), folds.end(), folded) == folds.end()) folds.push_back(folded);
  }
  if (!folds.empty() && FastestAxis(ir) < 0) {  // every extent is 0 or 1
    return WithShape(ir, Template::kRowReduction, ir.all_axes() & ~folds[0], folds[0]);
  }
  if (!folds.empty()) return ClassifyReductions(ir, folds);
  const Template kind =
      TransposedAxis(ir).has_value() ? Template::kTranspose : Template::kPointwise;
  return WithShape(ir, kind, 0, ir.all_axes());
}

}  // namespace retrograd
