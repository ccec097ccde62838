#include "fusion/cost/pass_price.h"

#include <algorithm>

#include "fusion/cost/kernel_cost.h"
#include "fusion/kernel/ir/scale.h"

namespace retrograd {

int64_t PassPs(int64_t bytes, int64_t instructions, const DeviceSpec& d) {
  const int64_t rate = d.rate_milli[static_cast<int>(CostClass::kSimple)];
  const int64_t compute =
      rate == 0 ? 0 : MulDiv(instructions, 1000 * kPsPerSecond / d.sms / rate, d.clock_hz);
  return d.launch_graph_ps + d.block_ps + std::max(compute, TransferPs(bytes, d.hbm_bytes_per_s));
}

}  // namespace retrograd
