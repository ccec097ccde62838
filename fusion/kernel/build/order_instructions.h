// The order in which a long kernel computes its values: one in which few of them wait for their
// readers.
#ifndef RETROGRAD_FUSION_KERNEL_BUILD_ORDER_INSTRUCTIONS_H_
#define RETROGRAD_FUSION_KERNEL_BUILD_ORDER_INSTRUCTIONS_H_

#include "fusion/kernel/ir/kernel_ir.h"

namespace retrograd {

// Kernels of up to so many instructions stay as they were built: the compiler orders what fits into
// registers by itself.
inline constexpr size_t kGraphsOrder = 128;

// The most values, in 4-byte words, that wait for a reader at once when the kernel is evaluated in
// its order at one point.
int MostWaiting(const KernelIr& ir);

// Puts the instructions of a long kernel into another order if fewer values wait in it. Loads and
// constants stand right before their first reader. A greedy list schedule: of the instructions
// whose operands are there, the next is the one behind which the fewest words wait; of equal ones
// the graph's first.
void OrderInstructions(KernelIr& ir);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_BUILD_ORDER_INSTRUCTIONS_H_
