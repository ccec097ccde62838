#include "fusion/verify/schedule_reading.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace retrograd {

FoldReading ReadFoldsOf(const KernelIr& ir) {
  FoldReading r;
  for (size_t a = 0; a < ir.extents.size(); ++a) {
    if (ir.extents[a] != 1) r.long_axes |= AxisMask{1} << a;
    if (ir.extents[a] > 1) r.fastest = static_cast<int>(a);
  }
  for (const Instr& instr : ir.instrs) {
    const AxisMask folded = instr.kind == InstrKind::kReduce ? instr.reduced & r.long_axes : 0;
    r.folded.push_back(folded);
    if (folded == 0) continue;
    if (std::find(r.folds.begin(), r.folds.end(), folded) == r.folds.end()) {
      r.folds.push_back(folded);
    }
    const bool fast = r.fastest < 0 || (folded >> r.fastest & 1) != 0;
    (fast ? r.across : r.down) = folded;
  }
  return r;
}

std::vector<bool> AfterFold(const KernelIr& ir, const FoldReading& r, bool across) {
  std::vector<bool> after(ir.instrs.size(), false);
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    for (int o : ir.instrs[i].operands) after[i] = after[i] || after[o];
    for (const Indirect& ind : ir.instrs[i].indirect) after[i] = after[i] || after[ind.instr];
    const AxisMask folded = r.folded[i];
    if (folded != 0 && folded == (across ? r.across : r.down)) after[i] = true;
  }
  return after;
}

absl::Status ScheduleReading::Misfit(absl::string_view why) const {
  return absl::FailedPreconditionError(
      absl::StrCat("P7: its schedule ", schedule.Print(), " ", why));
}

}  // namespace retrograd
