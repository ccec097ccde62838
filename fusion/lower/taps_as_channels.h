// First layers: the weight's gradient of images of few channels.
//
// Kernels that multiply 16-bit images want at least 32 channels together; three of them leave most
// of each product empty. What the taps along the last dims of the filter meet becomes channels of
// another image instead: x[n,c,..,q stride + s dilation - padding] as x2[n, s C + c,..,q], with
// further taps up to 32 channels. The gradient of the weight over x2 is the same sums, with one tap
// along those dims; what further taps meet is cut off it.
#ifndef RETROGRAD_FUSION_LOWER_TAPS_AS_CHANNELS_H_
#define RETROGRAD_FUSION_LOWER_TAPS_AS_CHANNELS_H_

#include "absl/status/statusor.h"
#include "fusion/device/device_spec.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// Where it is predicted to take less, the kernel that makes x2 included. x2 lies with its channels
// last.
absl::StatusOr<BackwardGraph> TakeTapsAsChannels(const BackwardGraph& graph,
                                                 const DeviceSpec& device);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_LOWER_TAPS_AS_CHANNELS_H_
