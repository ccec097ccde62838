// Convolutions and their gradients by a kernel of ours, for what no library takes: any strides,
// types, groups and dilations, one thread an element of the result. Correct, and slow.
#ifndef RETROGRAD_RUNTIME_OPS_CONVOLUTION_FALLBACK_CONVOLUTION_H_
#define RETROGRAD_RUNTIME_OPS_CONVOLUTION_FALLBACK_CONVOLUTION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "codegen/print/kernel.h"
#include "fusion/ops/convolution/convolution_call.h"
#include "runtime/device/device.h"

namespace retrograd {

// Its arguments are the two operands and the result, which begin at the stored values' first
// elements. Unimplemented, with the numbers, beyond what a launch takes.
absl::StatusOr<Kernel> FallbackConvolution(const ConvolutionCall& call, Dialect dialect);

// Who loads convolutions on a device that has no other implementation.
std::unique_ptr<CallLoader> MakeFallbackConvolutionLoader(Device& device);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_OPS_CONVOLUTION_FALLBACK_CONVOLUTION_H_
