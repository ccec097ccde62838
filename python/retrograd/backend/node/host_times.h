// What the host does in a run without Python, by parts.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace retrograd {

enum class HostPart : uint8_t {
  kLookUp,     // unpacks the saved tensors and finds their plan
  kPrepare,    // takes the addresses of all operands
  kMemory,     // says where gradients go, makes them and blocks, and lets go of saved tensors
  kIssue,      // the library: launches
  kGradients,  // puts gradients into parameters
};
inline constexpr size_t kHostParts = 5;

// Nanoseconds of all runs in this process.
inline std::atomic<int64_t> host_ns[kHostParts] = {};

// Of the last run without Python that ended: when it began and ended, on the clock that Python's
// time.monotonic_ns reads.
inline std::atomic<int64_t> last_begin_ns = 0, last_end_ns = 0;

// Adds the time since the last lap to a part.
class Laps {
 public:
  void End(HostPart part) {
    const auto now = Clock::now();
    Add(part, now - last_);
    last_ = now;
  }
  // Behind the last lap.
  void Tell() const {
    last_begin_ns = At(begin_);
    last_end_ns = At(last_);
  }
  // Time that lies within the next lap and is another part's.
  template <typename Work>
  void Within(HostPart part, Work work) {
    const auto begin = Clock::now();
    work();
    const auto took = Clock::now() - begin;
    Add(part, took);
    last_ += took;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static void Add(HostPart part, Clock::duration took) {
    host_ns[static_cast<size_t>(part)] +=
        std::chrono::duration_cast<std::chrono::nanoseconds>(took).count();
  }
  static int64_t At(Clock::time_point time) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
  }
  Clock::time_point begin_ = Clock::now(), last_ = begin_;
};

}  // namespace retrograd
