// The text of a tiled matmul's kernel, in parts, in this order. emit_tiled_matmul.cc prints the
// constants (kRows, ..) that they are written with, and where the block's matrices begin.
#ifndef RETROGRAD_CODEGEN_GEMM_TILED_MATMUL_TEXT_H_
#define RETROGRAD_CODEGEN_GEMM_TILED_MATMUL_TEXT_H_

namespace retrograd {

// Which tile of the matrices of number `matrix` a block makes, and which part of it a warp.
extern const char kTiledPlaces[];

// Defines fetch(step, stage) and settle(stage): the first sends the step's operands off, the second
// has them in shared memory behind the next barrier.
extern const char kTiledOperands[];

// Leaves the sums of the tile in the shared array `results`, lines kPitchD apart.
extern const char kTiledProduct[];

// Stores `results`, or adds them to what is there.
extern const char kTiledStore[];

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_GEMM_TILED_MATMUL_TEXT_H_
