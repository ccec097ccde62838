#include "fusion/kernel/ir/shared_divisors.h"

#include <map>
#include <utility>

#include "fusion/kernel/ir/value_range.h"

namespace retrograd {
namespace {

bool IsQuotient(const Instr& instr) {
  return instr.kind == InstrKind::kPointwise && ComputeType(instr.dtype) == DType::kFp32 &&
         (instr.op == Op::div || instr.op == Op::reciprocal);
}

}  // namespace

std::vector<std::vector<int>> SharedDivisors(const KernelIr& ir, absl::Span<const int> instrs) {
  std::map<int, std::vector<int>> quotients;  // by their divisor
  for (int i : instrs) {
    if (IsQuotient(ir.instrs[i])) quotients[ir.instrs[i].operands.back()].push_back(i);
  }
  std::vector<std::vector<int>> shared;
  for (auto& [divisor, of] : quotients) {
    if (of.size() < 2 || ir.instrs[divisor].kind == InstrKind::kConstant) continue;
    if (HasReciprocal(ir, divisor)) shared.push_back(std::move(of));
  }
  return shared;
}

}  // namespace retrograd
