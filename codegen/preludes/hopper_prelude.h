// What the CUDA dialect's kernels for sm_90a share: descriptions for the copy engine, barriers that
// it arrives at, and lists of registers for products.
#ifndef RETROGRAD_CODEGEN_PRELUDES_HOPPER_PRELUDE_H_
#define RETROGRAD_CODEGEN_PRELUDES_HOPPER_PRELUDE_H_

#include <string>

namespace retrograd {

// Behind the dialect's prelude.
std::string HopperPrelude();

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_PRELUDES_HOPPER_PRELUDE_H_
