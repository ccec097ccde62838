// Matmuls that make more of their product before it is stored.
#ifndef RETROGRAD_CODEGEN_GEMM_EMIT_FUSED_MATMUL_H_
#define RETROGRAD_CODEGEN_GEMM_EMIT_FUSED_MATMUL_H_

#include "codegen/print/kernel.h"

namespace retrograd {

GroupKernels EmitFusedMatMul(const FusedMatMul& body, Dialect dialect);

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_GEMM_EMIT_FUSED_MATMUL_H_
