// MovableRecording: a recording of a program's phase that is moved to the addresses of each run,
// where those seldom come twice.
#ifndef RETROGRAD_RUNTIME_PROGRAM_MOVABLE_RECORDING_H_
#define RETROGRAD_RUNTIME_PROGRAM_MOVABLE_RECORDING_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/device/device.h"

namespace retrograd {

class MovableRecording {
 public:
  // Recordings that are compared with this one: the first at the same addresses, the second says
  // what follows from which address, the third confirms it.
  static constexpr int kLooks = 3;

  bool possible() const { return possible_; }
  bool ready() const { return recording_ != nullptr; }
  Recording* recording() const { return recording_.get(); }

  // There is none, for good.
  void GiveUp() {
    possible_ = false;
    recording_ = nullptr;
  }

  // addresses: that it was made with.
  void Take(std::unique_ptr<Recording> recording, absl::Span<const void* const> addresses);

  // How far each address is moved for a look, in bytes; empty for the first. All differ, and are
  // multiples of kArenaAlignment, as those of MoveTo are.
  absl::Span<const int64_t> Distances(int look);

  // Moves the recording. False, and nothing is done, where an address would lie otherwise in its
  // line of memory: a library may have looked at that. After an error it is of no use.
  absl::StatusOr<bool> MoveTo(absl::Span<const void* const> addresses, Device* device);

 private:
  std::unique_ptr<Recording> recording_;
  std::vector<uint64_t> addresses_;
  std::vector<int64_t> moved_;  // scratch
  bool possible_ = true;
};

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_PROGRAM_MOVABLE_RECORDING_H_
