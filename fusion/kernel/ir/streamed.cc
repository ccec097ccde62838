#include "fusion/kernel/ir/streamed.h"

#include <algorithm>

namespace retrograd {

bool LooksUpAgain(const KernelIr& ir) {
  return std::any_of(ir.instrs.begin(), ir.instrs.end(), [&](const Instr& i) {
    return i.kind == InstrKind::kLoad && !i.indirect.empty() &&
           ir.Points(i.axes) > ir.buffers[i.buffer].elements;
  });
}

bool LoadsOnce(const KernelIr& ir, const Instr& load) {
  const auto reads = std::count_if(ir.instrs.begin(), ir.instrs.end(), [&](const Instr& i) {
    return i.kind == InstrKind::kLoad && i.buffer == load.buffer;
  });
  return reads == 1 && load.indirect.empty() && !ir.buffers[load.buffer].written &&
         ir.Points(load.axes) == ir.Points(ir.all_axes()) &&
         ir.Points(load.axes) <= ir.buffers[load.buffer].elements && LooksUpAgain(ir);
}

bool StoresOnce(const KernelIr& ir, const Store& store) {
  return store.mode == StoreMode::kStore &&
         ir.Points(ir.instrs[store.instr].axes) == ir.Points(ir.all_axes()) && LooksUpAgain(ir);
}

}  // namespace retrograd
