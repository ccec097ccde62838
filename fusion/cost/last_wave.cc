#include "fusion/cost/last_wave.h"

#include <algorithm>

#include "fusion/kernel/ir/scale.h"

namespace retrograd {

int64_t LastWavePpm(const Placing& placing, std::optional<SharedBySm> shared) {
  const int64_t resident = std::max<int64_t>(placing.blocks_per_sm, 1);
  const int64_t at_once = placing.sms * resident, last = placing.blocks % at_once;
  if (placing.blocks <= at_once || last == 0) return kPpm;
  int64_t lasts = at_once;  // as many blocks of a full wave
  if (shared) {
    // No faster than one block by itself, nor than all of them at the rate of a full wave.
    const int64_t of_block = std::max<int64_t>(shared->of_block, 1);
    const int64_t of_full = std::max(std::min(resident * of_block, shared->enough), of_block);
    const int64_t alone = MulDiv(placing.sms, of_full, of_block);
    lasts = std::min(std::max(CeilDiv(last, placing.sms) * placing.sms, alone), at_once);
  }
  return MulDiv(placing.blocks - last + lasts, kPpm, placing.blocks);
}

}  // namespace retrograd
