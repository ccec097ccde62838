// What a kernel takes that lowering makes, before any kernel is built: a pass over its tensors.
#ifndef RETROGRAD_FUSION_COST_PASS_PRICE_H_
#define RETROGRAD_FUSION_COST_PASS_PRICE_H_

#include <cstdint>

#include "fusion/device/device_spec.h"

namespace retrograd {

// Picoseconds of one launch that moves so many bytes to or from memory and issues so many simple
// fp32 instructions, whichever takes longer.
int64_t PassPs(int64_t bytes, int64_t instructions, const DeviceSpec& device);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_COST_PASS_PRICE_H_
