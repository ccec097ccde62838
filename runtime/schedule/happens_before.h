// What a step of a stream schedule knows to have finished when it starts: everything earlier on its
// own stream, everything it waits for, and what those knew.
#ifndef RETROGRAD_RUNTIME_SCHEDULE_HAPPENS_BEFORE_H_
#define RETROGRAD_RUNTIME_SCHEDULE_HAPPENS_BEFORE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "runtime/schedule/stream_schedule.h"

namespace retrograd {

class HappensBefore {
 public:
  // Waits must name earlier steps (S3).
  explicit HappensBefore(const StreamSchedule& schedule);

  // True if step a has finished whenever step b starts.
  bool Precedes(uint32_t a, uint32_t b) const { return Known(b, stream_[a]) > place_[a]; }
  // How many steps of the stream, from its first, have finished whenever the step starts.
  uint32_t Known(uint32_t step, int stream) const { return clocks_[step * streams_ + stream]; }
  // Place of the step among those of its stream.
  uint32_t place(uint32_t step) const { return place_[step]; }
  int stream(uint32_t step) const { return stream_[step]; }
  // The last step at whose start not all of the first used_through[s] steps of each stream s are
  // known to have finished; 0 if there is none.
  uint32_t LastBeside(absl::Span<const uint32_t> used_through) const;

 private:
  size_t streams_;
  std::vector<uint32_t> clocks_;  // [step][stream]
  std::vector<int> stream_;
  std::vector<uint32_t> place_;
  std::vector<std::vector<uint32_t>> steps_of_;  // by stream, in order
};

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_SCHEDULE_HAPPENS_BEFORE_H_
