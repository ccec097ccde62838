#include "fusion/kernel/ir/value_range.h"

#include <algorithm>
#include <vector>

#include "graph/base/rounding.h"

namespace retrograd {
namespace {

ValueRange OfPointwise(const Instr& instr, absl::Span<const ValueRange> known) {
  const ValueRange a = known[instr.operands[0]];
  switch (instr.op) {
    case Op::copy: return a;
    case Op::cast:  // rounding keeps the order of numbers
      if (!IsFloat(instr.dtype) || IsFp8(instr.dtype)) return {};
      return {RoundTo(instr.dtype, a.least), RoundTo(instr.dtype, a.most)};
    case Op::maximum:
    case Op::minimum: {
      const ValueRange b = known[instr.operands[1]];
      if (instr.op == Op::maximum) return {std::max(a.least, b.least), std::max(a.most, b.most)};
      return {std::min(a.least, b.least), std::min(a.most, b.most)};
    }
    default: return {};
  }
}

}  // namespace

ValueRange RangeOf(const KernelIr& ir, int of) {
  std::vector<ValueRange> ranges(of + 1);
  for (int i = 0; i <= of; ++i) {
    const Instr& instr = ir.instrs[i];
    if (instr.kind == InstrKind::kConstant) ranges[i] = {instr.constant, instr.constant};
    if (instr.kind == InstrKind::kPointwise && !instr.operands.empty()) {
      ranges[i] = OfPointwise(instr, ranges);
    }
  }
  return ranges[of];
}

bool StoresWithinType(const KernelIr& ir, const Store& store) {
  const DType dtype = ir.buffers[store.buffer].dtype;
  if (!IsFp8(dtype) || store.mode != StoreMode::kStore) return false;
  const Instr* made = &ir.instrs[store.instr];
  int value = store.instr;
  if (made->op == Op::cast && made->kind == InstrKind::kPointwise && made->dtype == dtype) {
    value = made->operands[0];  // rounded where it is stored
  }
  const ValueRange range = RangeOf(ir, value);
  return range.least >= -LargestOf(dtype) && range.most <= LargestOf(dtype);
}

}  // namespace retrograd
