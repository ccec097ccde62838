// Runs an emitted group on the host with buffers of exactly the promised size and alignment.
#ifndef RETROGRAD_TESTS_SUPPORT_KERNELS_RUN_KERNEL_H_
#define RETROGRAD_TESTS_SUPPORT_KERNELS_RUN_KERNEL_H_

#include <string>

#include "absl/status/statusor.h"
#include "codegen/print/kernel.h"
#include "runtime/host/host_module.h"
#include "tests/support/kernels/kernel_ir_interpreter.h"

namespace retrograd {

// Values fit for the buffers of an IR: floats in [-1, 1) that the dtype holds, integers that name
// rows of a short table.
BufferValues RandomBuffers(const KernelIr& ir, uint64_t seed);

// The buffers after the group's launches.
absl::StatusOr<BufferValues> RunKernels(const HostModule& module, const KernelBody& body,
                                        const GroupKernels& group, const BufferValues& before,
                                        uint64_t seed);

// "" if every written element is within tolerance of what the interpreter says, else where not.
std::string CompareToInterpreter(const KernelIr& ir, const BufferValues& before,
                                 const BufferValues& after);

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_KERNELS_RUN_KERNEL_H_
