// In which lanes of a vector a value is needed at all: of a join whose parts take turns, each lane
// has one part, and a compiler that unrolls the lanes leaves the other out.
#ifndef RETROGRAD_FUSION_KERNEL_IR_ACCESSES_NEEDED_LANES_H_
#define RETROGRAD_FUSION_KERNEL_IR_ACCESSES_NEEDED_LANES_H_

#include <vector>

#include "fusion/kernel/ir/accesses/vector_access.h"

namespace retrograd {

// By instruction: lanes in which a store, a reduction, a scan or the scatter needs its value; all
// where no guard tells.
std::vector<int> NeededLanes(const KernelIr& ir, const Vectors& vectors);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_IR_ACCESSES_NEEDED_LANES_H_
