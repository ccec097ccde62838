// Matmuls that make more of their product before it is stored: calls with an epilogue.
#ifndef RETROGRAD_CODEGEN_GEMM_EMIT_FUSED_MATMUL_H_
#define RETROGRAD_CODEGEN_GEMM_EMIT_FUSED_MATMUL_H_

#include "codegen/print/kernel.h"

namespace retrograd {

GroupKernels EmitFusedMatMul(const Call& call, Dialect dialect);

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_GEMM_EMIT_FUSED_MATMUL_H_
