// Convolutions and their gradients on the host: plain loops over filter taps. bf16 and fp16
// operands are widened to fp32, summed in fp32 and rounded once.
#ifndef RETROGRAD_RUNTIME_OPS_CONVOLUTION_HOST_CONVOLUTION_H_
#define RETROGRAD_RUNTIME_OPS_CONVOLUTION_HOST_CONVOLUTION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "runtime/device/device.h"

namespace retrograd {

// Unimplemented for types that are no floats.
absl::StatusOr<std::unique_ptr<LoadedCall>> LoadHostConvolution(const Call& call);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_OPS_CONVOLUTION_HOST_CONVOLUTION_H_
