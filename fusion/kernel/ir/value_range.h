// Between which numbers the values of an instruction lie, as far as constants and clamps tell.
#ifndef RETROGRAD_FUSION_KERNEL_IR_VALUE_RANGE_H_
#define RETROGRAD_FUSION_KERNEL_IR_VALUE_RANGE_H_

#include <limits>

#include "fusion/kernel/ir/kernel_ir.h"

namespace retrograd {

// Every value is NaN or one of these numbers.
struct ValueRange {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
};
ValueRange RangeOf(const KernelIr& ir, int instr);

// Whether the reciprocal of each of its numbers has its full precision and is finite: none is
// nearer to zero than the smallest normal number of fp32.
bool HasReciprocal(const KernelIr& ir, int instr);

// Whether no number that the store rounds lies beyond those of its type: a clamped one that becomes
// FP8. Other types have no such stores, as nothing is gained by knowing.
bool StoresWithinType(const KernelIr& ir, const Store& store);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_IR_VALUE_RANGE_H_
