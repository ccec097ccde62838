// What the host does in a run without Python, by parts.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace retrograd {

enum class HostPart : uint8_t {
  kLookUp,     // unpacks the saved tensors and finds their plan
  kPrepare,    // says where gradients go, and takes the addresses of all operands
  kMemory,     // makes gradients and blocks, and lets go of saved tensors
  kIssue,      // the library: launches
  kGradients,  // puts gradients into parameters
};
inline constexpr size_t kHostParts = 5;

// Nanoseconds of all runs in this process.
inline std::atomic<int64_t> host_ns[kHostParts] = {};

// Adds the time since the last lap to a part.
class Laps {
 public:
  void End(HostPart part) {
    const auto now = Clock::now();
    Add(part, now - last_);
    last_ = now;
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
  Clock::time_point last_ = Clock::now();
};

}  // namespace retrograd
