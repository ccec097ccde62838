#include "fusion/kernel/ir/value_range.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "graph/base/rounding.h"

namespace retrograd {
namespace {

constexpr ValueRange kNone;  // any number

// In the type that the instruction computes in; `none` where infinities meet.
double Rounded(const Instr& instr, double sum, double none) {
  return std::isnan(sum) ? none : RoundTo(ComputeType(instr.dtype), sum);
}

ValueRange OfPointwise(const Instr& instr, absl::Span<const ValueRange> known) {
  const ValueRange a = known[instr.operands[0]];
  switch (instr.op) {
    case Op::copy: return a;
    case Op::cast:  // rounding keeps the order of numbers
      if (!IsFloat(instr.dtype) || IsFp8(instr.dtype)) return kNone;
      return {RoundTo(instr.dtype, a.least), RoundTo(instr.dtype, a.most)};
    case Op::maximum:
    case Op::minimum: {
      const ValueRange b = known[instr.operands[1]];
      if (instr.op == Op::maximum) return {std::max(a.least, b.least), std::max(a.most, b.most)};
      return {std::min(a.least, b.least), std::min(a.most, b.most)};
    }
    case Op::exp:
    case Op::sqrt: return {.least = 0};
    case Op::add: {
      if (!IsFloat(instr.dtype)) return kNone;
      const ValueRange b = known[instr.operands[1]];
      return {Rounded(instr, a.least + b.least, kNone.least),
              Rounded(instr, a.most + b.most, kNone.most)};
    }
    default: return kNone;
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

bool HasReciprocal(const KernelIr& ir, int instr) {
  constexpr double kSmallest = std::numeric_limits<float>::min();
  const ValueRange range = RangeOf(ir, instr);
  return range.least >= kSmallest || range.most <= -kSmallest;
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
