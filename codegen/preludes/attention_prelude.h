// What the CUDA dialect's kernels of attention's backward on sm_90a are written with, behind the
// dialect's prelude and hopper_prelude.h.
//   dQ has a block for some rows of queries, which walks over the keys; it makes delta =
//   rowsum(dO O) by the way. dK and dV have a block for some rows of keys, which walks over the
//   queries of all heads that share them.
// Both make the scores, so that there are 7 products where one kernel for the three gradients
// takes 5. But no block adds to what others add to: two runs give the same bits, no block waits for
// another, and the scores' gradients go from registers into the next product.
#ifndef RETROGRAD_CODEGEN_PRELUDES_ATTENTION_PRELUDE_H_
#define RETROGRAD_CODEGEN_PRELUDES_ATTENTION_PRELUDE_H_

#include <string>

namespace retrograd {

std::string AttentionPrelude();

// Its parts.
extern const char kAttentionTiles[];    // loads, products, what of the work is whose
extern const char kAttentionQueries[];  // rg_attention_queries
extern const char kAttentionKeys[];     // rg_attention_keys, rg_bias_kinds

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_PRELUDES_ATTENTION_PRELUDE_H_
