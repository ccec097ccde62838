// The blocks of a grid beyond its last full wave.
#ifndef RETROGRAD_FUSION_COST_LAST_WAVE_H_
#define RETROGRAD_FUSION_COST_LAST_WAVE_H_

#include <cstdint>
#include <optional>

namespace retrograd {

// How blocks are placed: so many at once on each of the multiprocessors that have any.
struct Placing {
  int64_t blocks = 0;
  int64_t blocks_per_sm = 1;  // that fit
  int64_t sms = 1;
};

// What blocks that run together share of a multiprocessor, such as bytes under way.
struct SharedBySm {
  int64_t of_block = 0;  // what one of them uses
  int64_t enough = 0;    // all of them use no more
};

// The time of all waves over that of as many blocks in full ones, in parts per million, at least a
// million. Where blocks share, those of a last wave that is not full have more each, and take less
// time; nullopt: each takes as long as in a full wave.
int64_t LastWavePpm(const Placing& placing, std::optional<SharedBySm> shared);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_COST_LAST_WAVE_H_
