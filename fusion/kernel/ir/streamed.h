// Which elements a kernel has no further use for once it has touched them, where it looks rows up
// that it wants again: the former need not lie in a cache, where they take the room of the latter.
#ifndef RETROGRAD_FUSION_KERNEL_IR_STREAMED_H_
#define RETROGRAD_FUSION_KERNEL_IR_STREAMED_H_

#include "fusion/kernel/ir/kernel_ir.h"

namespace retrograd {

// Whether the kernel looks up more elements of a value than the value has: some of them again.
bool LooksUpAgain(const KernelIr& ir);

// Of a kernel that looks up again: whether it reads each element of the load's value once, or
// stores what it does not read.
bool LoadsOnce(const KernelIr& ir, const Instr& load);
bool StoresOnce(const KernelIr& ir, const Store& store);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_IR_STREAMED_H_
