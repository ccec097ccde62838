// Which products our multiplying kernels make, and which epilogues follow them there: tiles of 128
// x 128 of 16-bit elements, whose operands the copy engine brings into shared memory.
#ifndef RETROGRAD_FUSION_OPS_GEMM_TILE_LEGALITY_H_
#define RETROGRAD_FUSION_OPS_GEMM_TILE_LEGALITY_H_

#include <string>

#include "fusion/ops/matmul/matmul_call.h"

namespace retrograd {

inline constexpr int64_t kProductTile = 128;  // rows and columns
inline constexpr int kProductPack = 8;        // elements that a thread of an epilogue takes at once

// Why no tiles are made of the product; empty if they are.
std::string WhyNoTiles(const MatMulCall& call);

// The same of the operands that come from outside: an address that may be any multiple of the
// element's size is none for the copy engine.
std::string WhyNoTiles(const BackwardGraph& graph, const MatMulCall& call);

// Why the kernel cannot follow the product tile by tile, of one that reads the product point by
// point.
std::string WhyNotByTiles(const KernelIr& epilogue, ValueId product);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_OPS_GEMM_TILE_LEGALITY_H_
