// Launches shared by products that nothing in the graph waits for: gradients of weights at small
// batch, whose results have fewer tiles than the device has SMs
// (fusion/ops/convolution/shared_products.h).
//
// Nothing reads what they store, and nobody overwrites what they read, so that any of them may wait
// for the others. Those of neighbouring layers wait together while a cache holds what they read.
#ifndef RETROGRAD_FUSION_HORIZONTAL_SHARED_CALLS_H_
#define RETROGRAD_FUSION_HORIZONTAL_SHARED_CALLS_H_

#include <vector>

#include "fusion/horizontal/horizontal.h"
#include "fusion/pricing/group_pricer.h"

namespace retrograd {

SharedLaunches ShareCalls(std::vector<Group> groups, const GroupPricer& pricer);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_HORIZONTAL_SHARED_CALLS_H_
