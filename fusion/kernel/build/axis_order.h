// The order of a kernel's axes, and which of them are really one.
#ifndef RETROGRAD_FUSION_KERNEL_BUILD_AXIS_ORDER_H_
#define RETROGRAD_FUSION_KERNEL_BUILD_AXIS_ORDER_H_

#include "fusion/kernel/ir/kernel_ir.h"

namespace retrograd {

// Orders the axes as the largest access lies in memory (a store before a load of its size), so
// that the last axis is the fastest; drops axes of extent 1; merges neighbours that every access,
// guard and reduction treats as one, and a last axis shorter than a vector with the one before it.
// Where some large access then goes element by element, but none does in the order of another
// large one, that order is taken; likewise where no access reaches all points and some steps over
// elements. The buffers' alignments are known.
void OrderAndMergeAxes(KernelIr& ir);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_BUILD_AXIS_ORDER_H_
