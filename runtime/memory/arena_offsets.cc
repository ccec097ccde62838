#include "runtime/memory/arena_offsets.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace retrograd {
namespace {

// Storages that were placed, found by the steps during which they may be in use. Steps fall into a
// fixed number of buckets: most storages live in one or two, so that a look-up reads few.
class PlacedByTime {
 public:
  explicit PlacedByTime(uint32_t num_steps)
      : width_(std::max<uint32_t>(1, num_steps / kBuckets)),
        buckets_(num_steps / width_ + 1),
        seen_() {}

  void Add(uint32_t storage, uint32_t first, uint32_t end) {
    for (uint32_t b = first / width_; b <= end / width_; ++b) buckets_[b].push_back(storage);
    if (storage >= seen_.size()) seen_.resize(storage + 1, 0);
  }

  // Each storage of these steps' buckets once.
  template <typename Visit>
  void Find(uint32_t first, uint32_t end, Visit visit) {
    ++round_;
    for (uint32_t b = first / width_; b <= end / width_; ++b) {
      for (uint32_t storage : buckets_[b]) {
        if (seen_[storage] == round_) continue;
        seen_[storage] = round_;
        visit(storage);
      }
    }
  }

 private:
  static constexpr uint32_t kBuckets = 2048;
  uint32_t width_;
  std::vector<std::vector<uint32_t>> buckets_;
  std::vector<uint32_t> seen_;
  uint32_t round_ = 0;
};

bool InUseTogether(const Storage& a, const Storage& b, const HappensBefore& order) {
  return !a.lifetime.OverBefore(b.lifetime, order) && !b.lifetime.OverBefore(a.lifetime, order);
}

// The start of the smallest gap of at least `bytes` between the taken ranges, or their end.
int64_t BestFit(std::vector<std::pair<int64_t, int64_t>>* taken, int64_t bytes) {
  std::sort(taken->begin(), taken->end());
  int64_t best = -1, best_size = std::numeric_limits<int64_t>::max(), end = 0;
  for (const auto& [first, last] : *taken) {
    const int64_t gap = first - end;
    if (gap >= bytes && gap < best_size) {
      best = end;
      best_size = gap;
    }
    end = std::max(end, last);
  }
  return best >= 0 ? best : end;
}

}  // namespace

int64_t BytesInArena(int64_t bytes) {
  return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}

int64_t AssignOffsets(const HappensBefore& order, uint32_t num_steps, bool reuse,
                      std::vector<Storage>* storages) {
  int64_t arena = 0;
  if (!reuse) {
    for (Storage& storage : *storages) {
      storage.offset = arena;
      arena += BytesInArena(storage.bytes);
    }
    return arena;
  }
  std::vector<uint32_t> by_size(storages->size());
  std::iota(by_size.begin(), by_size.end(), 0);
  std::stable_sort(by_size.begin(), by_size.end(), [&](uint32_t a, uint32_t b) {
    return (*storages)[a].bytes > (*storages)[b].bytes;
  });
  PlacedByTime placed(num_steps);
  std::vector<std::pair<int64_t, int64_t>> taken;
  for (uint32_t s : by_size) {
    Storage& storage = (*storages)[s];
    if (storage.bytes == 0) continue;
    const uint32_t end = order.LastBeside(storage.lifetime.used_through);
    taken.clear();
    placed.Find(storage.lifetime.first, end, [&](uint32_t other_number) {
      const Storage& other = (*storages)[other_number];
      if (InUseTogether(storage, other, order)) {
        taken.emplace_back(other.offset, other.offset + BytesInArena(other.bytes));
      }
    });
    storage.offset = BestFit(&taken, BytesInArena(storage.bytes));
    arena = std::max(arena, storage.offset + BytesInArena(storage.bytes));
    placed.Add(s, storage.lifetime.first, end);
  }
  return arena;
}

}  // namespace retrograd
