// Loads that run along another axis than the stores do.
#ifndef RETROGRAD_FUSION_KERNEL_IR_TRANSPOSED_H_
#define RETROGRAD_FUSION_KERNEL_IR_TRANSPOSED_H_

#include <optional>
#include <vector>

#include "fusion/kernel/ir/kernel_ir.h"

namespace retrograd {

// The axis other than the fastest along which some loads are consecutive while a store is
// consecutive along the fastest one; nullopt if no load is, or either axis is shorter than a tile.
std::optional<int> TransposedAxis(const KernelIr& ir);

// The loads of that order, which a transposing kernel passes through shared memory.
std::vector<int> TransposedLoads(const KernelIr& ir, int axis);

// Edge of the square tile, in elements.
inline constexpr int kTransposeTile = 32;

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_IR_TRANSPOSED_H_
