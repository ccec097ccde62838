#include "runtime/program/graph_cache.h"

#include <algorithm>
#include <utility>

#include "absl/hash/hash.h"

namespace retrograd {

Recording* RecordingCache::Find(absl::Span<const void* const> addresses) {
  for (Entry& entry : entries_) {
    if (!std::equal(addresses.begin(), addresses.end(), entry.addresses.begin(),
                    entry.addresses.end())) {
      continue;
    }
    entry.used = ++clock_;
    return entry.recording.get();
  }
  return nullptr;
}

bool RecordingCache::CameBefore(absl::Span<const void* const> addresses) {
  const size_t hash = absl::HashOf(addresses) | 1;
  if (std::find(seen_.begin(), seen_.end(), hash) != seen_.end()) return true;
  seen_[next_seen_] = hash;
  next_seen_ = (next_seen_ + 1) % kMostSeen;
  return false;
}

std::unique_ptr<Recording> RecordingCache::MakeRoom() {
  if (entries_.size() < kMostRecordings) return nullptr;
  const auto oldest =
      std::min_element(entries_.begin(), entries_.end(),
                       [](const Entry& a, const Entry& b) { return a.used < b.used; });
  std::unique_ptr<Recording> recording = std::move(oldest->recording);
  entries_.erase(oldest);
  return recording;
}

Recording* RecordingCache::Add(absl::Span<const void* const> addresses,
                               std::unique_ptr<Recording> recording) {
  entries_.push_back({std::vector<const void*>(addresses.begin(), addresses.end()),
                      std::move(recording), ++clock_});
  return entries_.back().recording.get();
}

}  // namespace retrograd
