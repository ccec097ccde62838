#include "fusion/analysis/free_reads.h"

#include <algorithm>

#include "fusion/kernel/ir/scale.h"

namespace retrograd {

FreeReads FreeReadsOf(const DeviceSpec& device) {
  constexpr int64_t kFsPerSecond = 1000 * kPsPerSecond;
  FreeReads free{.large_elements = device.large_elements,
                 .remade_ops = device.remade_ops,
                 .byte_fs = kFsPerSecond / device.hbm_bytes_per_s,
                 .fp64_ppm = std::max<int64_t>(device.fp64_ppm, 1)};
  for (int c = 0; c < kNumCostClasses; ++c) {
    const int64_t rate_milli = device.rate_milli[c];  // 0: free
    if (rate_milli == 0) continue;
    free.op_fs[c] = MulDiv(kFsPerSecond / device.clock_hz, 1000, rate_milli * device.sms);
  }
  return free;
}

}  // namespace retrograd
