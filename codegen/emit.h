// From planned groups to launches.
#ifndef RETROGRAD_CODEGEN_EMIT_H_
#define RETROGRAD_CODEGEN_EMIT_H_

#include "codegen/print/kernel.h"
#include "fusion/plan/plan.h"

namespace retrograd {

// The launches of one fused group. The caller is certain of a plan: whatever was planned can be
// emitted.
GroupKernels EmitGroup(const KernelBody& body, Dialect dialect);
GroupKernels EmitGroup(const Group& group, Dialect dialect);

// Lets launches from number `first` on be launched before what is in front of them has finished:
// they begin by waiting for it. Kernels with a head of their own stay as they are.
void StartEarly(GroupKernels* kernels, size_t first = 0);

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_EMIT_H_
