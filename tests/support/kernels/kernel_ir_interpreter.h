// Evaluates a KernelIr in double, point by point: the oracle of emitted kernels. It shares nothing
// with the emitters.
#ifndef RETROGRAD_TESTS_SUPPORT_KERNELS_KERNEL_IR_INTERPRETER_H_
#define RETROGRAD_TESTS_SUPPORT_KERNELS_KERNEL_IR_INTERPRETER_H_

#include <vector>

#include "fusion/kernel/ir/kernel_ir.h"
#include "graph/base/rounding.h"

namespace retrograd {

// Contents of every buffer, one double an element; written ones hold what stood there before.
using BufferValues = std::vector<std::vector<double>>;

// The buffers after the kernel. Values that the IR rounds are rounded; stores are not.
BufferValues InterpretKernel(const KernelIr& ir, BufferValues buffers);

// The same expressions over magnitudes: sums and products of absolute values, a bound on what
// rounding errors scale with.
BufferValues InterpretMagnitudes(const KernelIr& ir, const BufferValues& buffers);

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_KERNELS_KERNEL_IR_INTERPRETER_H_
