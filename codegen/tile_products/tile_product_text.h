// The text that multiplies a block's tile, for kernels whose operands come part by part into shared
// memory (codegen/preludes/tensor_core_prelude.h): implicit GEMMs, groups of matmuls.
#ifndef RETROGRAD_CODEGEN_TILE_PRODUCTS_TILE_PRODUCT_TEXT_H_
#define RETROGRAD_CODEGEN_TILE_PRODUCTS_TILE_PRODUCT_TEXT_H_

#include <string>

#include "absl/strings/string_view.h"

namespace retrograd {

// Leaves the sums of the tile, kRows x kColumns, in the shared array `results`, lines kPitchD
// apart.
//
// The text before it defines constants: kStages parts of an operand on their way or in shared
// memory; kStage and kStageA, elements of a part and of what of it is the first operand's; kPitchA
// and kPitchB, kAcrossA and kAcrossB, as rg_multiply_tiles takes them; kTileRows x kTileColumns,
// 16 x 16 tiles of a warp; kSlices, groups of warps that share the products of a step, and kPieces,
// rounds in which each of them makes its own. And names: `tiles`, the shared array of the operands;
// the type sum_t; warp_row, warp_column, slice and lane, of the thread; the steps from `begin` to
// `end`; copy(to, piece), which sends one of kPieces pieces of a step's copies off, and advance(),
// which goes on to the next step.
//
// behind_step: text that each step ends with, which may read and write `sums`
// [kTileRows][kTileColumns].
std::string TileProduct(absl::string_view behind_step = "");

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_TILE_PRODUCTS_TILE_PRODUCT_TEXT_H_
