// The text of grouped_matmul's kernel, in parts, in this order. emit_grouped_matmul.cc prints the
// constants (kRows, ..) that they are written with.
#ifndef RETROGRAD_CODEGEN_GROUPED_MATMUL_GROUPED_MATMUL_TEXT_H_
#define RETROGRAD_CODEGEN_GROUPED_MATMUL_GROUPED_MATMUL_TEXT_H_

namespace retrograd {

// Which group and tile a block makes: `group`, its places from `begin` to `end`; the tile's first
// row `row0` and column `column0`, its `rows` and `columns` from there on; the first term that is
// loaded, `term0`, a multiple of kTermsBegin, how many terms are `left` from there on, and how many
// of these are `skipped`, since they belong to the group before. A block without a tile ends.
extern const char kGroupOfBlock[];

// Defines copy(..) and advance(..) for codegen/tile_products/tile_product_text.h, which follows.
extern const char kGroupedOperands[];

// With scales of blocks: what stands before the product, and at the end of each of its steps.
extern const char kGroupedBlocks[];
extern const char kGroupedBlockEnds[];

// Defines scaled(sum, row, column) of the tile, without or with scales.
extern const char kGroupedNoScales[];
extern const char kGroupedScales[];

// Stores `results`, or adds them to what is there.
extern const char kGroupedStore[];

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_GROUPED_MATMUL_GROUPED_MATMUL_TEXT_H_
