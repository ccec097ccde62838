#include <algorithm>

#include "fusion/kernel/templates/schedule.h"

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

}  // namespace retrograd
