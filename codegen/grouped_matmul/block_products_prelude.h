// Products whose blocks of terms have scales of their own, by warpgroups of Hopper.
#ifndef RETROGRAD_CODEGEN_GROUPED_MATMUL_BLOCK_PRODUCTS_PRELUDE_H_
#define RETROGRAD_CODEGEN_GROUPED_MATMUL_BLOCK_PRODUCTS_PRELUDE_H_

#include <string>

namespace retrograd {

// Text behind codegen/preludes/multiplier_prelude.h: rg_scales_of_blocks and rg_multiply_blocks.
std::string BlockProductsPrelude();

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_GROUPED_MATMUL_BLOCK_PRODUCTS_PRELUDE_H_
