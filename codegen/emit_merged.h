// Launches that several kernels share.
#ifndef RETROGRAD_CODEGEN_EMIT_MERGED_H_
#define RETROGRAD_CODEGEN_EMIT_MERGED_H_

#include "codegen/print/kernel.h"

namespace retrograd {

GroupKernels EmitMerged(const KernelLaunch& launch, Dialect dialect);

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_EMIT_MERGED_H_
