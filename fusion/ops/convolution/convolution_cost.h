// Predicted time of a convolution or of one of its gradients, in integer picoseconds.
//
// Several implementations race where a shape is first met (decisions 039, 043, 044), so a call
// takes what the fastest of these is taken to need:
//
//   the library      a matmul for each group (matmul_cost.h), whose operands are gathered; or,
//   where
//                    there are groups, products element by element
//   kernels of ours  of depthwise gradients, and of other gradients of 16-bit operands: the cycles
//   by
//                    which their schedules are ordered, at the device's clock
//
// and a launch; never less than its bytes take.
#ifndef RETROGRAD_FUSION_OPS_CONVOLUTION_CONVOLUTION_COST_H_
#define RETROGRAD_FUSION_OPS_CONVOLUTION_CONVOLUTION_COST_H_

#include "fusion/cost/kernel_cost.h"
#include "fusion/device/device_spec.h"
#include "fusion/ops/convolution/convolution_call.h"
#include "fusion/ops/convolution/implicit_gemm_tiles.h"
#include "fusion/ops/matmul/matmul_call.h"
#include "fusion/plan/call.h"

namespace retrograd {

// The matmul that makes the result, one for each group.
MatMulCall AsMatMul(const ConvolutionCall& call);

// What bounds schedules of kernels of ours on the device.
ImplicitGemmLimits ImplicitGemmLimitsOf(const DeviceSpec& device);

// Of cycles at the device's clock.
int64_t PsOfCycles(int64_t cycles, const DeviceSpec& device);

// `explain` fills the terms; the figures are the same without.
Price PriceConvolution(const Call& call, const DeviceSpec& device, bool explain);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_OPS_CONVOLUTION_CONVOLUTION_COST_H_
