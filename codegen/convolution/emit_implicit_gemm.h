// Kernels for the gradients of convolutions as matmuls whose operands are gathered while they are
// multiplied, in any dialect: sums in fp32 (fp64 of fp64), in a fixed order, rounded once.
#ifndef RETROGRAD_CODEGEN_CONVOLUTION_EMIT_IMPLICIT_GEMM_H_
#define RETROGRAD_CODEGEN_CONVOLUTION_EMIT_IMPLICIT_GEMM_H_

#include "codegen/convolution/convolution_kernels.h"
#include "codegen/print/dialect.h"
#include "fusion/ops/convolution/implicit_gemm_tiles.h"

namespace retrograd {

// The call passes ImplicitGemmRefusal, and the tile is one that it can have.
ConvolutionKernels EmitImplicitGemm(const ConvolutionCall& call, const ImplicitGemmTile& tile,
                                    Dialect dialect);

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_CONVOLUTION_EMIT_IMPLICIT_GEMM_H_
