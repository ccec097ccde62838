// A digest of kernels of ours, as choices between them and others are kept by: other kernels take
// another time.
#ifndef RETROGRAD_RUNTIME_GPU_KERNELS_DIGEST_H_
#define RETROGRAD_RUNTIME_GPU_KERNELS_DIGEST_H_

#include <string>

#include "absl/types/span.h"
#include "codegen/print/kernel.h"

namespace retrograd {

// Eight hexadecimal digits of all that is compiled of them, and of how they are launched.
std::string KernelsDigest(Dialect dialect, absl::Span<const Kernel> kernels);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_GPU_KERNELS_DIGEST_H_
