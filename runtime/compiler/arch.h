// What kernels are compiled for on a device of an architecture.
#ifndef RETROGRAD_RUNTIME_COMPILER_ARCH_H_
#define RETROGRAD_RUNTIME_COMPILER_ARCH_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "codegen/print/kernel.h"

namespace retrograd {

// The architecture; of kernels that multiply by warpgroups with the mark of instructions that it
// alone has: "sm_90a" of "sm_90".
std::string ArchFor(absl::Span<const Kernel> kernels, absl::string_view arch);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_COMPILER_ARCH_H_
