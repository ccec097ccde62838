// Which matmuls can have an epilogue, and which kernels can be one.
//
// A GEMM with an epilogue keeps its result on the chip, tile by tile. The epilogue is a pointwise
// kernel over the elements of the result. Each point reads its own element of the result, may read
// other tensors at affine indices, and stores.
#ifndef RETROGRAD_FUSION_OPS_MATMUL_EPILOGUE_H_
#define RETROGRAD_FUSION_OPS_MATMUL_EPILOGUE_H_

#include <string>

#include "fusion/device/device_spec.h"
#include "fusion/ops/matmul/matmul_call.h"

namespace retrograd {

// Whether the implementation computes this matmul: its dtypes are listed, the call does nothing but
// multiply, and 16-bit operands fit the tiles of gemm_tile_legality.h.
bool TakesProduct(const MatMulEpilogue& row, const MatMulCall& call);

// Whether the op could be part of an epilogue. It must be pointwise, with one point for each
// element of the matmul's result, whose type is `product`.
bool MayFollow(const BackwardGraph& graph, NodeId id, const TensorType& product);

// Why the kernel cannot be the epilogue of this implementation. Empty if it can. `product` is the
// matmul's result.
std::string WhyNoEpilogue(const KernelIr& epilogue, ValueId product, const MatMulEpilogue& row);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_OPS_MATMUL_EPILOGUE_H_
