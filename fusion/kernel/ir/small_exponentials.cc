#include "fusion/kernel/ir/small_exponentials.h"

#include "fusion/kernel/ir/value_range.h"

namespace retrograd {
namespace {

bool IsExponential(const Instr& instr) {
  return instr.kind == InstrKind::kPointwise && instr.op == Op::exp &&
         ComputeType(instr.dtype) == DType::kFp32;
}

// Whether results are about the same if this operand is small or zero.
bool TakesSmallForZero(const Instr& instr, size_t operand) {
  if (instr.kind != InstrKind::kPointwise) return true;
  if (!IsFloat(instr.dtype)) return false;
  switch (instr.op) {
    case Op::add:
    case Op::sub:
    case Op::mul:
    case Op::fma:
    case Op::neg:
    case Op::abs:
    case Op::maximum:
    case Op::minimum:
    case Op::where:
    case Op::cast:
    case Op::copy:
    case Op::exp:
    case Op::log1p:
    case Op::tanh: return true;
    case Op::div: return operand == 0;
    default: return false;
  }
}

bool IsCast(const Instr& instr) {
  return instr.kind == InstrKind::kPointwise && instr.op == Op::cast;
}

// The instruction whose value a store or a sum at indices takes, whatever it is cast to.
int Uncast(const KernelIr& ir, int instr) {
  while (IsCast(ir.instrs[instr])) instr = ir.instrs[instr].operands[0];
  return instr;
}

}  // namespace

std::vector<bool> ZeroWhereSmall(const KernelIr& ir) {
  const size_t count = ir.instrs.size();
  std::vector<bool> made(count, false);  // of an exponential
  for (size_t i = 0; i < count; ++i) {   // operands stand before what they are used by
    made[i] = IsExponential(ir.instrs[i]);
    for (int operand : ir.instrs[i].operands) made[i] = made[i] || made[operand];
  }
  std::vector<bool> told(count, false);  // from zero
  const auto tell_stored = [&](int instr) {
    const int stored = Uncast(ir, instr);
    if (IsExponential(ir.instrs[stored])) told[stored] = true;
  };
  for (const Store& store : ir.stores) tell_stored(store.instr);
  if (ir.scatter) tell_stored(ir.scatter->src_instr);
  std::vector<bool> zero(count, false);
  for (size_t i = count; i-- > 0;) {
    const Instr& instr = ir.instrs[i];
    if (!made[i]) continue;
    zero[i] = IsExponential(instr) && !told[i];
    if (IsExponential(instr)) continue;
    const bool all = told[i] && !HasReciprocal(ir, static_cast<int>(i));
    for (size_t o = 0; o < instr.operands.size(); ++o) {
      const int operand = instr.operands[o];
      if (!made[operand]) continue;
      const bool here = !TakesSmallForZero(instr, o) && !HasReciprocal(ir, operand);
      if (here || all) told[operand] = true;
    }
  }
  return zero;
}

}  // namespace retrograd
