// Kernels for the gradients of depthwise convolutions, channels last, in any dialect: sums in fp32
// (fp64 of fp64), in a fixed order, rounded once.
#ifndef RETROGRAD_CODEGEN_CONVOLUTION_EMIT_DEPTHWISE_H_
#define RETROGRAD_CODEGEN_CONVOLUTION_EMIT_DEPTHWISE_H_

#include "codegen/convolution/convolution_kernels.h"
#include "codegen/print/dialect.h"
#include "fusion/ops/convolution/depthwise_tiles.h"

namespace retrograd {

// The call passes DepthwiseRefusal, and the tile is one that it can have.
ConvolutionKernels EmitDepthwiseInputGradient(const ConvolutionCall& call,
                                              const DepthwiseInputTile& tile, Dialect dialect);
ConvolutionKernels EmitDepthwiseWeightGradient(const ConvolutionCall& call,
                                               const DepthwiseWeightTile& tile, Dialect dialect);

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_CONVOLUTION_EMIT_DEPTHWISE_H_
