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

// Defines image_at(line, at): where an element of a line of the result lies in the shared array
// `image`, which is as the result lies in memory.
extern const char kTiledImage[];

// Leaves the sums of the tile in the image.
extern const char kTiledProduct[];

// Stores the image, or adds it to what is there: lines cut where addresses are multiples of kVD
// elements. What of a line is before the first such place or behind the last goes element by
// element. Between the first and the last of them stands one way to store kVD elements: a copy of
// them, their sums with what is there, or one element.
extern const char kTiledStore[];
extern const char kTiledPack[];
extern const char kTiledAddedPack[];
extern const char kTiledElement[];
extern const char kTiledStores[];

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_GEMM_TILED_MATMUL_TEXT_H_
