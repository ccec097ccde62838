// RecordingCache: the recordings of a program, one for each set of addresses that its library calls
// were recorded with; the least recently used gives way.
#ifndef RETROGRAD_RUNTIME_PROGRAM_GRAPH_CACHE_H_
#define RETROGRAD_RUNTIME_PROGRAM_GRAPH_CACHE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "runtime/device/device.h"

namespace retrograd {

inline constexpr size_t kMostRecordings = 4;
inline constexpr size_t kMostSeen = 8;  // sets of addresses, of those that are not recorded

class RecordingCache {
 public:
  // Null if there is none for these addresses. Allocates nothing.
  Recording* Find(absl::Span<const void* const> addresses);

  // Whether it was asked so for these addresses, not longer ago than for so many others. Allocates
  // nothing.
  bool CameBefore(absl::Span<const void* const> addresses);

  bool full() const { return entries_.size() == kMostRecordings; }

  // Makes room for one more: the recording that gives way, or null while there is room.
  std::unique_ptr<Recording> MakeRoom();

  Recording* Add(absl::Span<const void* const> addresses, std::unique_ptr<Recording> recording);

 private:
  struct Entry {
    std::vector<const void*> addresses;
    std::unique_ptr<Recording> recording;
    uint64_t used = 0;  // when, by clock_
  };
  std::vector<Entry> entries_;
  std::array<size_t, kMostSeen> seen_ = {};  // hashes of addresses; 0: none
  size_t next_seen_ = 0;
  uint64_t clock_ = 0;
};

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_PROGRAM_GRAPH_CACHE_H_
