// Depthwise gradients of few taps as sums of shifted products.
//
// A depthwise convolution multiplies each channel by itself: its gradients are no work for tensor
// cores but passes over memory. The gradient of the image is, at each place, a sum over the taps of
// the result's gradient a tap further on times the filter's element; that of the filter a sum for
// each tap over the whole image. As ops of single elements they fuse with what makes the result's
// gradient, in any order of the dims. Libraries take several times as long where the images are
// row-major, as lines of time in state-space models and short convolutions of language models are.
#ifndef RETROGRAD_FUSION_LOWER_DEPTHWISE_TAPS_H_
#define RETROGRAD_FUSION_LOWER_DEPTHWISE_TAPS_H_

#include "absl/status/statusor.h"
#include "fusion/device/device_spec.h"
#include "fusion/lower/layouts/layouts.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// Gradients of the image in strides of 1 and gradients of the filter, with one filter a channel of
// several and at most 16 taps, whose windows reach over the image's edges by no more than all taps
// but one, where that is predicted to take less than their calls on tensors as they lie by
// `layouts`. Products are added up in the operands' compute dtype and rounded once.
absl::StatusOr<BackwardGraph> ExpandDepthwiseTaps(const BackwardGraph& graph,
                                                  const LayoutOptions& layouts,
                                                  const DeviceSpec& device);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_LOWER_DEPTHWISE_TAPS_H_
