// The launches that make a convolution's gradient, and what they hand to each other.
#ifndef RETROGRAD_CODEGEN_CONVOLUTION_CONVOLUTION_KERNELS_H_
#define RETROGRAD_CODEGEN_CONVOLUTION_CONVOLUTION_KERNELS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "codegen/print/kernel.h"
#include "fusion/ops/convolution/image_boxes.h"

namespace retrograd {

// Addresses of a convolution's launches, by number.
enum ConvolutionSlot : int { kConvolutionFirst, kConvolutionSecond, kConvolutionResult, kPartials };
inline constexpr int kConvolutionSlots = 4;

struct ConvolutionKernels {
  struct Launch {
    Kernel kernel;
    std::vector<ConvolutionSlot> args;  // by the kernel's argument
    // Of KernelHead::kBoxes: what descriptions it takes, the walks' and behind them the matrix's.
    std::optional<BoxOperands> boxes;
  };
  std::vector<Launch> launches;
  int64_t partial_elements = 0;  // of the workspace at kPartials
  DType partial_dtype = DType::kFp32;
  std::string schedule;  // for people
};

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_CONVOLUTION_CONVOLUTION_KERNELS_H_
