// Predicted time of a matmul, term by term, in integer picoseconds.
//
// A matmul is cut into tiles of its result, one block each. The library is taken to choose the best
// of the usual tiles, and to split the sum over k where there are fewer tiles than SMs:
//
//   T = launch + call + max(waves * k/s * step, operands / bandwidth) + split + result / bandwidth
//
// with waves = ceil(tiles * s / SMs) and s the number of pieces of the sum. A step of a tile along
// k takes its flops at an SM's rate, and never less than what it waits for its operands; small
// tiles are therefore slow for their size and large ones leave SMs idle. The result is written
// after the last step of each tile and overlaps with little.
#ifndef RETROGRAD_FUSION_OPS_MATMUL_MATMUL_COST_H_
#define RETROGRAD_FUSION_OPS_MATMUL_MATMUL_COST_H_

#include "fusion/cost/kernel_cost.h"
#include "fusion/device/device_spec.h"
#include "fusion/ops/matmul/matmul_call.h"

namespace retrograd {

// By the library, or by tiles of ours (matmul_tiles_cost.h) where these take less. `explain` fills
// the terms; the figures are the same without.
Price PriceMatMul(const MatMulCall& call, const DeviceSpec& device, bool explain = false);

// By the library.
Price PriceLibraryMatMul(const MatMulCall& call, const DeviceSpec& device, bool explain = false);

// The same of a kernel that has one way to run it: a block for each tile of so many rows and
// columns, which makes its whole sum.
int64_t TiledMatMulPs(const MatMulCall& call, int64_t tile, const DeviceSpec& device);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_OPS_MATMUL_MATMUL_COST_H_
