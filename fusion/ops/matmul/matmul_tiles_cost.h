// Predicted time of a matmul by tiles of ours (matmul_tiles.h), in integer picoseconds:
//
//   T = launch + wait + max(tiles, bytes / bandwidth)
//   tiles = max(tiles of an SM * products of a tile / rate, rounds of tiles * steps * wait)
//
// A tile waits for its operands at each step, and for its sums and stores; the tiles that an SM
// holds at once wait side by side, and multiply one after the other. An operand whose lines begin
// at no multiples of 16 bytes is shifted on the way, at the products' expense.
#ifndef RETROGRAD_FUSION_OPS_MATMUL_MATMUL_TILES_COST_H_
#define RETROGRAD_FUSION_OPS_MATMUL_MATMUL_TILES_COST_H_

#include "fusion/cost/kernel_cost.h"
#include "fusion/device/device_spec.h"
#include "fusion/ops/matmul/matmul_call.h"

namespace retrograd {

// kHuge of what no tiles are offered for (IsWorthTiles), of types of other than 16 bits, whose rate
// was not measured, and for a device whose rate is 0, which has no tiles of ours. Stored values are
// taken to be aligned.
Price PriceMatMulTiles(const MatMulCall& call, const DeviceSpec& device, bool explain = false);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_OPS_MATMUL_MATMUL_TILES_COST_H_
