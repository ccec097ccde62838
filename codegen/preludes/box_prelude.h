// What kernels are written with whose copy engine loads boxes of images and matrices
// (fusion/ops/convolution/image_boxes.h), and which multiply these by warpgroups: for sm_90a,
// behind multiplier_prelude.h, and for the host, behind its tensor cores. A box lies in shared
// memory by lines of 128 bytes, whose packs of 16 bytes are swizzled by the line's number.
#ifndef RETROGRAD_CODEGEN_PRELUDES_BOX_PRELUDE_H_
#define RETROGRAD_CODEGEN_PRELUDES_BOX_PRELUDE_H_

#include <string>

#include "codegen/print/kernel.h"

namespace retrograd {

// The dialect is CUDA or the host's.
std::string BoxPrelude(Dialect dialect);

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_PRELUDES_BOX_PRELUDE_H_
