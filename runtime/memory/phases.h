// Where a run is cut into phases: the third stage of the memory plan.
#ifndef RETROGRAD_RUNTIME_MEMORY_PHASES_H_
#define RETROGRAD_RUNTIME_MEMORY_PHASES_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "fusion/device/device_spec.h"
#include "runtime/schedule/stream_schedule.h"

namespace retrograd {

struct PhaseOptions {
  int most = 1;          // 1: a run is one piece
  int64_t begin_ps = 0;  // what the begin of one more phase costs the host and the device
  // A part of the peak is worth the same part of the run's time, since memory that a step does not
  // hold goes into a larger batch, if the peak of one phase is at least this; of a smaller one it
  // is worth as much less as that is smaller, since a larger batch fits without it.
  int64_t scarce_bytes = 0;
};

// For a device. The begin of a phase: a launch of a recording costs the host some four times what
// one of a kernel does, and the outputs and blocks that the caller makes for the phase as much
// again (measured on an H200: 15 us of the device, 15 to 25 of the host).
PhaseOptions PhaseOptionsOf(const DeviceSpec& spec, int most);

// Memory in use from the start of a step to the end of another.
struct Holding {
  int64_t bytes = 0;
  uint32_t first = 0, last = 0;  // steps
};

// The first step of each phase, the first of them 0. Of all numbers of phases up to `most`, the one
// with the least sum of time lost and of what its peak is worth, both as parts of what one phase
// takes.
//
// callers: what the caller holds: inputs that it lets go of when no later phase reads them, and
// outputs that it makes for the phase that writes them first. inside: storages of the arena; those
// of one phase share bytes, others are held through all their phases.
std::vector<uint32_t> ChoosePhases(const StreamSchedule& schedule,
                                   absl::Span<const Holding> callers,
                                   absl::Span<const Holding> inside, const PhaseOptions& options);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_MEMORY_PHASES_H_
