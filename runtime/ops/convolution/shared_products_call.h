// Products that share launches of ours (fusion/ops/convolution/shared_products.h) on a device that
// loads boxes.
#ifndef RETROGRAD_RUNTIME_OPS_CONVOLUTION_SHARED_PRODUCTS_CALL_H_
#define RETROGRAD_RUNTIME_OPS_CONVOLUTION_SHARED_PRODUCTS_CALL_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "codegen/print/kernel.h"
#include "fusion/ops/convolution/implicit_gemm_tiles.h"
#include "runtime/device/device.h"

namespace retrograd {

// The kernels that LoadSharedProducts compiles, in a dialect; empty where it refuses.
std::vector<Kernel> SharedProductKernels(absl::Span<const ExpectedCall> calls, Dialect dialect,
                                         const ImplicitGemmLimits& limits);

// A run has the operands and results of all calls, in their order. Unimplemented where the limits
// have no boxes, a call is no such product, or an address is not known to be a multiple of 16
// bytes.
absl::StatusOr<std::unique_ptr<LoadedCall>> LoadSharedProducts(Device& device,
                                                               absl::Span<const ExpectedCall> calls,
                                                               const ImplicitGemmLimits& limits);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_OPS_CONVOLUTION_SHARED_PRODUCTS_CALL_H_
