// The launches that several convolutions' gradients share.
#ifndef RETROGRAD_CODEGEN_CONVOLUTION_SHARE_LAUNCHES_H_
#define RETROGRAD_CODEGEN_CONVOLUTION_SHARE_LAUNCHES_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "codegen/convolution/convolution_kernels.h"

namespace retrograd {

struct SharedConvolutionKernels {
  struct Launch {
    Kernel kernel;
    // By the kernel's argument: of which gradient, and which of its addresses.
    std::vector<std::pair<size_t, ConvolutionSlot>> args;
    // In the order of its descriptions: of which gradient.
    std::vector<std::pair<size_t, BoxOperands>> boxes;
  };
  std::vector<Launch> launches;
};

// The first launches of all are one, whose blocks stand in the order of the gradients, and so are
// the second ones. They have as many threads as each other.
SharedConvolutionKernels ShareLaunches(const std::vector<ConvolutionKernels>& gradients);

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_CONVOLUTION_SHARE_LAUNCHES_H_
