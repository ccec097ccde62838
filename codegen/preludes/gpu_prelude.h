// What CUDA and HIP translation units start with. No header is included: the run-time compilers
// have none to offer.
#ifndef RETROGRAD_CODEGEN_PRELUDES_GPU_PRELUDE_H_
#define RETROGRAD_CODEGEN_PRELUDES_GPU_PRELUDE_H_

#include <string>

namespace retrograd {

std::string CudaPrelude();
std::string HipPrelude();

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_PRELUDES_GPU_PRELUDE_H_
