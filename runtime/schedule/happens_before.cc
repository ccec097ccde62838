#include "runtime/schedule/happens_before.h"

#include <algorithm>

namespace retrograd {

HappensBefore::HappensBefore(const StreamSchedule& schedule)
    : streams_(schedule.streams),
      clocks_(schedule.steps.size() * schedule.streams, 0),
      stream_(schedule.steps.size()),
      place_(schedule.steps.size()),
      steps_of_(schedule.streams) {
  for (uint32_t i = 0; i < schedule.steps.size(); ++i) {
    const Step& step = schedule.steps[i];
    std::vector<uint32_t>& own = steps_of_[step.stream];
    uint32_t* clock = &clocks_[i * streams_];
    const auto learn = [&](uint32_t earlier) {  // that it has finished, and what it knew
      const uint32_t* theirs = &clocks_[earlier * streams_];
      for (size_t s = 0; s < streams_; ++s) clock[s] = std::max(clock[s], theirs[s]);
      uint32_t& own_count = clock[stream_[earlier]];
      own_count = std::max(own_count, place_[earlier] + 1);
    };
    if (!own.empty()) learn(own.back());
    for (uint32_t wait : step.waits) learn(wait);
    stream_[i] = step.stream;
    place_[i] = static_cast<uint32_t>(own.size());
    own.push_back(i);
  }
}

uint32_t HappensBefore::LastBeside(absl::Span<const uint32_t> used_through) const {
  uint32_t last = 0;
  for (const std::vector<uint32_t>& steps : steps_of_) {
    // What a stream knows only grows along it.
    const auto first_after = std::partition_point(steps.begin(), steps.end(), [&](uint32_t step) {
      for (size_t s = 0; s < streams_; ++s) {
        if (Known(step, static_cast<int>(s)) < used_through[s]) return true;
      }
      return false;
    });
    if (first_after != steps.begin()) last = std::max(last, *(first_after - 1));
  }
  return last;
}

}  // namespace retrograd
