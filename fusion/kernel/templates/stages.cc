#include <algorithm>

#include "fusion/kernel/templates/registers.h"

namespace retrograd {

Stages AssignStages(const KernelIr& ir, const Classification& shape) {
  Stages s;
  s.stage.assign(ir.instrs.size(), 0);
  s.finalize.assign(ir.instrs.size(), false);
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    const Instr& instr = ir.instrs[i];
    for (int o : instr.operands) {
      s.stage[i] = std::max(s.stage[i], s.stage[o]);
      s.finalize[i] = s.finalize[i] || s.finalize[o];
    }
    for (const Indirect& ind : instr.indirect) {
      s.stage[i] = std::max(s.stage[i], s.stage[ind.instr]);
      s.finalize[i] = s.finalize[i] || s.finalize[ind.instr];
    }
    const AxisMask folded = FoldedAxes(ir, instr);
    if (folded == 0) continue;
    if ((folded & shape.shape.column_axes) != 0) {
      s.row_stages = std::max(s.row_stages, ++s.stage[i]);
    } else {
      s.finalize[i] = true;
    }
  }
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    if (s.finalize[i]) s.stage[i] = s.row_stages + 1;
  }
  return s;
}

namespace {

// Of each instruction: whether rows that are evaluated behind the round need it, and take it as it
// is where it is a column's.
std::vector<bool> NeededBehind(const KernelIr& ir, AxisMask row_axes, const Stages& stages,
                               int round) {
  std::vector<bool> needed(ir.instrs.size(), false);
  const bool last = round == stages.row_stages;
  for (const Store& store : ir.stores) needed[store.instr] = needed[store.instr] || last;
  for (size_t i = ir.instrs.size(); i-- > 0;) {
    const Instr& instr = ir.instrs[i];
    const bool folds = FoldedAxes(ir, instr) != 0;
    const bool here =
        folds ? stages.stage[i] == round + 1 : needed[i] && (instr.axes & row_axes) != 0;
    if (!here) continue;
    for (int o : instr.operands) needed[o] = true;
    for (const Indirect& ind : instr.indirect) needed[ind.instr] = true;
  }
  return needed;
}

}  // namespace

std::vector<std::vector<int>> SharedColumnValues(const KernelIr& ir, const RowsAndColumns& shape,
                                                 const Stages& stages) {
  const AxisMask row_axes = shape.column_axes;
  std::vector<std::vector<int>> rounds;
  std::vector<bool> known(ir.instrs.size(), false);
  for (int round = 1; round <= stages.row_stages; ++round) {
    const std::vector<bool> needed = NeededBehind(ir, row_axes, stages, round);
    std::vector<bool> by_rows(ir.instrs.size(), false);
    for (size_t i = 0; i < ir.instrs.size(); ++i) {
      const Instr& instr = ir.instrs[i];
      const bool folds = FoldedAxes(ir, instr) != 0;
      const bool here =
          folds ? stages.stage[i] == round + 1 : needed[i] && (instr.axes & row_axes) != 0;
      for (int o : instr.operands) by_rows[o] = by_rows[o] || here;
      for (const Indirect& ind : instr.indirect) by_rows[ind.instr] = by_rows[ind.instr] || here;
    }
    std::vector<int>& values = rounds.emplace_back();
    for (size_t i = 0; i < ir.instrs.size(); ++i) {
      const Instr& instr = ir.instrs[i];
      const bool follows = stages.stage[i] >= 1 && (instr.axes & row_axes) == 0;
      if (!by_rows[i] || !follows || known[i] || FoldedAxes(ir, instr) != 0) continue;
      if (instr.kind == InstrKind::kConstant) continue;
      known[i] = true;
      values.push_back(static_cast<int>(i));
    }
  }
  return rounds;
}

}  // namespace retrograd
