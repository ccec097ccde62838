// Quotients by one divisor, which are products with its reciprocal: a division takes ten
// instructions, most of which see to very small and very large divisors.
#ifndef RETROGRAD_FUSION_KERNEL_IR_SHARED_DIVISORS_H_
#define RETROGRAD_FUSION_KERNEL_IR_SHARED_DIVISORS_H_

#include <vector>

#include "absl/types/span.h"
#include "fusion/kernel/ir/kernel_ir.h"

namespace retrograd {

// The sets of two and more quotients among `instrs` (ascending) that share their divisor's
// reciprocal, each ascending: of fp32, whose quotients GPUs round about as far off, by a divisor
// that has one (HasReciprocal).
std::vector<std::vector<int>> SharedDivisors(const KernelIr& ir, absl::Span<const int> instrs);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_IR_SHARED_DIVISORS_H_
