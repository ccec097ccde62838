// The kernel of a matmul of any sizes and alignments, in any dialect: a tile of one matrix of the
// batch a block (fusion/ops/matmul/matmul_tiles.h), sums in fp32 (fp64 of fp64) in a fixed order,
// rounded once.
#ifndef RETROGRAD_CODEGEN_GEMM_EMIT_TILED_MATMUL_H_
#define RETROGRAD_CODEGEN_GEMM_EMIT_TILED_MATMUL_H_

#include "codegen/print/launch_writer.h"
#include "fusion/ops/matmul/matmul_tiles.h"

namespace retrograd {

// Addresses of the launch, by number.
enum TiledMatMulSlot : int { kTiledA, kTiledB, kTiledResult };
inline constexpr int kTiledMatMulSlots = 3;

// The call passes TiledMatMulRefusal and has elements and terms. warp: threads of a warp of the
// device, RG_WARP where the kernel is compiled.
LaunchWriter::Launch EmitTiledMatMul(const MatMulCall& call, const MatMulTile& tile,
                                     const MatMulAlignments& known, Dialect dialect, int warp);

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_GEMM_EMIT_TILED_MATMUL_H_
