// From planned groups to launches as source text.
#ifndef RETROGRAD_CODEGEN_EMIT_H_
#define RETROGRAD_CODEGEN_EMIT_H_

#include <string>
#include <vector>

#include "codegen/print/kernel.h"
#include "fusion/plan/plan.h"

namespace retrograd {

// Prints one fused group. The caller is certain of a plan: whatever was planned can be printed.
GroupKernels EmitGroup(const KernelBody& body, Dialect dialect);
GroupKernels EmitGroup(const Group& group, Dialect dialect);

// What a translation unit of this dialect starts with: types, loads, shuffles, math.
std::string Prelude(Dialect dialect);

// Prelude and every distinct kernel of the plan, in order of first use.
std::string EmitTranslationUnit(const std::vector<GroupKernels>& kernels, Dialect dialect);

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_EMIT_H_
