// Kernels as source text, without a prelude.
#ifndef RETROGRAD_CODEGEN_PRINT_KERNEL_TEXT_H_
#define RETROGRAD_CODEGEN_PRINT_KERNEL_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "codegen/print/kernel.h"

namespace retrograd {

// "RG_KERNEL(name, threads, arguments)", or by the macro of another kind of head.
std::string PrintHead(const Kernel& kernel);

// Heads that one compiler takes in the place of the plain one:
// of the host dialect, for kernels whose threads meet,
std::string PrintCooperativeHead(const Kernel& kernel);
// of CUDA, for so many blocks on an SM at once, of kernels that may have several there.
std::string PrintResidentHead(const Kernel& kernel, int64_t blocks);
bool MayBeResident(const Kernel& kernel);

// The whole kernel, its members in front. `head` declares it.
std::string PrintKernel(const Kernel& kernel, absl::string_view head);
std::string PrintKernel(const Kernel& kernel);

// The sized numbers of its text as literals, in order: those of members first.
std::vector<std::string> NumbersOf(const Kernel& kernel);

// Names the kernel by a digest of its text.
void NameKernel(Kernel* kernel);

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_PRINT_KERNEL_TEXT_H_
