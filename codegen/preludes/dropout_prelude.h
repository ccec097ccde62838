// What kernels of attention that drops out are written with: whose probabilities a forward kept, by
// the generators that graph/ir/library/dropout_mask.h describes.
#ifndef RETROGRAD_CODEGEN_PRELUDES_DROPOUT_PRELUDE_H_
#define RETROGRAD_CODEGEN_PRELUDES_DROPOUT_PRELUDE_H_

#include <string>

namespace retrograd {

// In any dialect: rg_dropout_cudnn, rg_dropout_efficient and rg_dropout_flash, each with
// keeps(head, query, key).
std::string DropoutPrelude();

// Behind that, in CUDA: what a thread keeps of a tile whose elements lie as tensor cores deal them
// out.
std::string TiledDropoutPrelude();

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_PRELUDES_DROPOUT_PRELUDE_H_
