// Which matmuls the generated GEMM kernels compute, and which epilogues they can have. These
// kernels work on tiles (fusion/kernel/gemm/gemm_tile.h) of elements of 16 bits and load the
// operands by TMA.
#ifndef RETROGRAD_FUSION_OPS_GEMM_TILE_LEGALITY_H_
#define RETROGRAD_FUSION_OPS_GEMM_TILE_LEGALITY_H_

#include <string>

#include "fusion/ops/matmul/matmul_call.h"

namespace retrograd {

inline constexpr int kProductPack = 8;  // elements that an epilogue's thread handles at once

// Why the kernels cannot compute the matmul in tiles. Empty if they can.
std::string WhyNoTiles(const MatMulCall& call);

// The same for operands that are inputs of the graph. TMA needs aligned addresses, and an input may
// promise no more than a multiple of its element size.
std::string WhyNoTiles(const BackwardGraph& graph, const MatMulCall& call);

// Why a kernel that reads the matmul's result point by point cannot run tile by tile. Empty if it
// can.
std::string WhyNotByTiles(const KernelIr& epilogue, ValueId product);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_OPS_GEMM_TILE_LEGALITY_H_
