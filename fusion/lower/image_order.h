// Row-major images of convolutions stored with their channels last, where that takes less time.
//
// Kernels that multiply 16-bit images want the channels of a pixel together. A library transposes
// row-major images within each call: a gradient for both of its calls, an input once more, and a
// result back. Where a chain of convolutions (image_chains.h) lies row-major because the saved
// tensors do, these are copied into channels-last order instead, once each; what kernels make
// between the convolutions follows them (layouts.h).
#ifndef RETROGRAD_FUSION_LOWER_IMAGE_ORDER_H_
#define RETROGRAD_FUSION_LOWER_IMAGE_ORDER_H_

#include "absl/status/statusor.h"
#include "fusion/device/device_spec.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// Decides for each chain as a whole: the prices of its calls with all images as they come, and with
// their channels last and every copy that this takes.
absl::StatusOr<BackwardGraph> OrderImages(const BackwardGraph& graph, const DeviceSpec& device);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_LOWER_IMAGE_ORDER_H_
