// Exponentials of fp32 whose results below the smallest normal number may be zero: a GPU makes such
// ones in fewer instructions.
#ifndef RETROGRAD_FUSION_KERNEL_IR_SMALL_EXPONENTIALS_H_
#define RETROGRAD_FUSION_KERNEL_IR_SMALL_EXPONENTIALS_H_

#include <vector>

#include "fusion/kernel/ir/kernel_ir.h"

namespace retrograd {

// By instruction: whether it is such an exponential. One is not where the kernel tells small
// numbers from zero: by a logarithm, root, power, divisor or comparison of what is made of it,
// unless that is known to be no small number (HasReciprocal); nor where the exponential itself is
// stored, of which other kernels make what they like.
std::vector<bool> ZeroWhereSmall(const KernelIr& ir);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_IR_SMALL_EXPONENTIALS_H_
