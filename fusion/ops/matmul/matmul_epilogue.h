// What a multiplying kernel can make of its product before storing it.
//
// The product's element stays in the registers of the thread that has summed it, so the epilogue is
// a pointwise kernel over the product's elements: each point reads its own element of the product,
// reads other tensors where an affine index says, and stores.
#ifndef RETROGRAD_FUSION_OPS_MATMUL_EPILOGUE_H_
#define RETROGRAD_FUSION_OPS_MATMUL_EPILOGUE_H_

#include <string>

#include "fusion/device/device_spec.h"
#include "fusion/ops/matmul/matmul_call.h"

namespace retrograd {

// Whether the implementation multiplies so: dtypes, a plain product, and of 16-bit elements one
// that is made of tiles (gemm_tile_legality.h).
bool TakesProduct(const MatMulEpilogue& row, const MatMulCall& call);

// Whether the op could be part of the epilogue of a product of this type: pointwise, at its points.
bool MayFollow(const BackwardGraph& graph, NodeId id, const TensorType& product);

// Why the kernel is no epilogue of the product under the implementation; empty if it is one.
std::string WhyNoEpilogue(const KernelIr& epilogue, ValueId product, const MatMulEpilogue& row);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_OPS_MATMUL_EPILOGUE_H_
