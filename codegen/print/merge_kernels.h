// One launch of several kernels: each becomes a member, whose block and argument numbers count from
// its own first ones. Equal ones, such as the same kernel in several layers, are one function. The
// launch sends each range of blocks to its member. A block is in one of them alone, so their shared
// arrays lie in the same bytes.
#ifndef RETROGRAD_CODEGEN_PRINT_MERGE_KERNELS_H_
#define RETROGRAD_CODEGEN_PRINT_MERGE_KERNELS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "codegen/print/kernel.h"

namespace retrograd {

// The kernels have the numbers `from` among the members of their group (KernelArg::member), and as
// many threads as each other. comment: lines above the head.
Kernel MergeKernels(const std::vector<Kernel>& kernels, const std::vector<uint32_t>& from,
                    std::string comment);

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_PRINT_MERGE_KERNELS_H_
