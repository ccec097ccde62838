// Products of tiles in shared memory that also fp32 and fp64 numbers have on tensor cores, in any
// dialect, behind tensor_core_prelude.h.
#ifndef RETROGRAD_CODEGEN_ATTENTION_WIDE_TILES_PRELUDE_H_
#define RETROGRAD_CODEGEN_ATTENTION_WIDE_TILES_PRELUDE_H_

#include <string>

#include "codegen/print/kernel.h"

namespace retrograd {

// rg_multiply_wide_tiles: as rg_multiply_tiles, but for fp32 and fp64 numbers, too. In CUDA each
// fp32 number is the sum of two TF32 numbers, and the product of the two lower ones is left out: a
// product is exact to 2^-19 of it. fp64 in CUDA and fp32 in HIP are taken as they are; fp64 in HIP
// is multiplied by no matrix core.
//
// Of `sums` [1][n], 16 rows of a warp:
// rg_clear_tiles(sums): zeros.
// rg_multiply_rows<channels>(sums, tiles, own, other, pitch, lane): adds the products of 16 rows of
// `tiles`, from element `own` on, by the rows from `other` on.
// rg_add_rows<terms, apart>(sums, tiles, numbers, numbers_pitch, other, pitch, lane): adds the
// products of 16 rows of so many numbers by as many rows from `other` on. apart: these begin at
// zero, and are added by the rest, since tensor cores cut off what does not fit into a sum.
std::string WideTilesPrelude(Dialect dialect);

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_ATTENTION_WIDE_TILES_PRELUDE_H_
