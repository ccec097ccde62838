// The text of grouped_matmul's kernel, in parts, in this order. emit_grouped_matmul.cc prints the
// constants (kRows, ..) that they are written with.
#ifndef RETROGRAD_CODEGEN_GROUPED_MATMUL_GROUPED_MATMUL_TEXT_H_
#define RETROGRAD_CODEGEN_GROUPED_MATMUL_GROUPED_MATMUL_TEXT_H_

namespace retrograd {

// Which group and tile a block makes: `group`, its places from `begin` to `end`; the tile's first
// row `row0` and column `column0`, its `rows` and `columns` from there on; the sum's first term
// `term0` and how many terms are `left`. A block without a tile ends.
extern const char kGroupOfBlock[];

// Defines copy(..) and advance(..) for codegen/tile_products/tile_product_text.h, which follows.
extern const char kGroupedOperands[];

// Defines scaled(sum, row, column) of the tile, without or with scales.
extern const char kGroupedNoScales[];
extern const char kGroupedScales[];

// Stores `results`, or adds them to what is there.
extern const char kGroupedStore[];

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_GROUPED_MATMUL_GROUPED_MATMUL_TEXT_H_
