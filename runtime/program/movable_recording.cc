#include "runtime/program/movable_recording.h"

#include <random>
#include <utility>

#include "graph/base/status.h"

namespace retrograd {
namespace {

constexpr uint64_t kHalf = uint64_t{1} << 46;  // of the addresses that a process has
constexpr int kRandomBits = 16;                // of a distance
constexpr uint64_t kMostAddresses = uint64_t{1} << 16;

}  // namespace

void MovableRecording::Take(std::unique_ptr<Recording> recording,
                            absl::Span<const void* const> addresses) {
  recording_ = std::move(recording);
  addresses_.clear();
  for (const void* address : addresses) addresses_.push_back(reinterpret_cast<uintptr_t>(address));
  moved_.reserve(addresses_.size());
}

// The number of an address and random bits above it, so that no two distances are equal and no
// other word of a parameter is likely to differ by one. They lead from either end of the addresses
// to its middle.
absl::Span<const int64_t> MovableRecording::Distances(int look) {
  std::mt19937_64 random(static_cast<uint64_t>(look) + 1);
  moved_.clear();
  for (size_t i = 0; look > 0 && i < addresses_.size(); ++i) {
    const uint64_t bits = random() >> (64 - kRandomBits);
    const auto distance =
        static_cast<int64_t>((bits * kMostAddresses + i + 1) * uint64_t{kArenaAlignment});
    moved_.push_back(addresses_[i] < kHalf ? distance : -distance);
  }
  return moved_;
}

absl::StatusOr<bool> MovableRecording::MoveTo(absl::Span<const void* const> addresses,
                                              Device* device) {
  moved_.clear();
  for (size_t i = 0; i < addresses_.size(); ++i) {
    const uint64_t distance = reinterpret_cast<uintptr_t>(addresses[i]) - addresses_[i];
    if (distance % uint64_t{kArenaAlignment} != 0) return false;
    moved_.push_back(static_cast<int64_t>(distance));
  }
  RG_RETURN_IF_ERROR(device->Move(*recording_, moved_));
  return true;
}

}  // namespace retrograd
