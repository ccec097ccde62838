// Reductions over few elements as folds of as many instructions: a thread makes whole results, by
// vectors along an axis that is not folded, and waits for no other thread.
#ifndef RETROGRAD_FUSION_KERNEL_BUILD_UNROLL_REDUCTIONS_H_
#define RETROGRAD_FUSION_KERNEL_BUILD_UNROLL_REDUCTIONS_H_

#include <optional>

#include "fusion/kernel/ir/kernel_ir.h"

namespace retrograd {

// The kernel without the axes that its reductions fold: what varies over them stands there once for
// each of their places. nullopt if nothing is folded, if they have more than kMostUnrolled places
// together, or if there is a scan or a scatter.
inline constexpr int64_t kMostUnrolled = 8;
std::optional<KernelIr> UnrollReductions(const KernelIr& ir);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_BUILD_UNROLL_REDUCTIONS_H_
