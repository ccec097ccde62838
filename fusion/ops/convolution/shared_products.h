// Products that share launches: gradients of weights, and matmuls of the same form, whose terms are
// pixels or rows that both operands have in lines of channels. Alone each has few blocks and
// splits its sum to have more; together they fill the chip with fewer splits.
#ifndef RETROGRAD_FUSION_OPS_CONVOLUTION_SHARED_PRODUCTS_H_
#define RETROGRAD_FUSION_OPS_CONVOLUTION_SHARED_PRODUCTS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "fusion/cost/kernel_cost.h"
#include "fusion/device/device_spec.h"
#include "fusion/ops/convolution/convolution_call.h"
#include "fusion/ops/convolution/implicit_gemm_tiles.h"
#include "fusion/plan/call.h"

namespace retrograd {

// Of a launch: each takes two descriptions of 128 bytes and three addresses, which are parameters,
// of which a kernel has at most 4096 bytes (CUDA before 12.1).
inline constexpr size_t kMostSharedProducts = 14;

// A call as the gradient of a convolution's weight: a matmul's is of one tap and one image, a row
// of pixels.
struct WeightProduct {
  ConvolutionCall convolution;
  int gradient = 0;  // which operand of the call is y; the other one is x
};

// Nullopt where the call is no such product, or is not loaded by boxes (image_boxes.h).
std::optional<WeightProduct> WeightProductOf(const Call& call);

// By product.
struct SharedTiles {
  std::vector<ImplicitGemmTile> tiles;  // of one number of warps
  std::vector<int64_t> block_cycles;    // BoxTileWork
  int64_t cycles = 0;                   // of all of them, the launch that adds up included
  bool adds_up = false;                 // whether any has splits
};
// The tiles by which all are done soonest; nullopt where one of them has none.
std::optional<SharedTiles> ChooseSharedTiles(absl::Span<const WeightProduct> products,
                                             const ImplicitGemmLimits& limits);

// Predicted time of the calls in shared launches, each of which has a WeightProductOf: of the
// tiles' cycles at the device's clock, as of boxes alone (convolution_cost.h), but no less than all
// bytes take. kHuge where they have no tiles.
Price PriceSharedProducts(absl::Span<const Call* const> calls, const DeviceSpec& device,
                          bool explain);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_OPS_CONVOLUTION_SHARED_PRODUCTS_H_
