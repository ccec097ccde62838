// Kernels as one source: what a compiler is given.
#ifndef RETROGRAD_CODEGEN_TRANSLATION_UNIT_H_
#define RETROGRAD_CODEGEN_TRANSLATION_UNIT_H_

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "codegen/print/kernel.h"
#include "codegen/print/kernel_text.h"

namespace retrograd {

// What a translation unit of this dialect starts with: types, loads, shuffles, math, and these
// parts, which are for CUDA alone.
std::string Prelude(Dialect dialect, PreludeParts parts = {});

// Each kernel of the groups once, in order of first use, with its text.
std::vector<Kernel> DistinctKernels(absl::Span<const GroupKernels> groups);

// Takes away the text of all kernels but the first of each name: layers run the same ones.
void KeepTextsOnce(absl::Span<GroupKernels> groups);

// InvalidArgument for a name that no function can have, or that two of the kernels have.
absl::Status CheckNames(absl::Span<const Kernel> kernels);

// How each kernel is declared.
using HeadPrinter = absl::FunctionRef<std::string(const Kernel&)>;

// The kernels, an empty line before each.
std::string PrintKernels(absl::Span<const Kernel> kernels, HeadPrinter head = PrintHead);

// The same behind the prelude that they need.
std::string TranslationUnit(absl::Span<const Kernel> kernels, Dialect dialect,
                            HeadPrinter head = PrintHead);

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_TRANSLATION_UNIT_H_
