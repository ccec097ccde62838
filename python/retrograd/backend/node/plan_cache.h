// The plans of one compiled function, found by what they were made for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "direct_plan.h"

namespace retrograd {

// What a backward is run with. The sizes are the integers that the forward saved: those of a
// dynamic graph that its backward computes with, which no tensor's shape need show.
struct RunInputs {
  const std::vector<int64_t>& sizes;
  const Tensors& saved;
  const Tensors& tangents;
  const std::vector<bool>& used;  // by tangent: whether its result is differentiable
};

// Of no thread: who shares it locks it.
class PlanCache {
 public:
  // Keeps at most so many plans (0: any number), whose programs hold at most so many bytes
  // together; the one that ran last stays in any case.
  PlanCache(size_t most, size_t most_bytes) : most_(most), most_bytes_(most_bytes) {}

  // Null where there is none. One that is found is the last to go.
  std::shared_ptr<const DirectPlan> Find(const RunInputs& run) {
    // Of one size behind itself nothing is hashed.
    if (!plans_.empty() && Suits(*plans_.front().plan, run)) return plans_.front().plan;
    const auto [begin, end] = by_key_.equal_range(KeyOf(run));
    for (auto at = begin; at != end; ++at) {
      if (!Suits(*at->second->plan, run)) continue;
      plans_.splice(plans_.begin(), plans_, at->second);
      return plans_.front().plan;
    }
    return nullptr;
  }

  // The plan that was made for the run. Those that were not used for longest give way.
  void Add(const RunInputs& run, std::shared_ptr<DirectPlan> plan) {
    plan->sizes = run.sizes;
    held_bytes_ += plan->held_bytes;
    plans_.push_front({KeyOf(run), std::move(plan)});
    by_key_.emplace(plans_.front().key, plans_.begin());
    while (TooMany()) Forget(std::prev(plans_.end()));
  }

  size_t size() const { return plans_.size(); }

 private:
  struct Entry {
    size_t key = 0;
    std::shared_ptr<const DirectPlan> plan;
  };
  using Entries = std::list<Entry>;

  static bool Suits(const DirectPlan& plan, const RunInputs& run) {
    return plan.sizes == run.sizes && AbsentAre(plan, run.tangents, run.used) &&
           Fits(plan, run.saved, run.tangents);
  }

  // Of all sizes and shapes.
  static size_t KeyOf(const RunInputs& run) {
    constexpr uint64_t kMultiplier = 0x9e3779b97f4a7c15;  // 2^64 over the golden ratio
    uint64_t key = 0;
    const auto put = [&key](int64_t number) {
      key = (key ^ static_cast<uint64_t>(number)) * kMultiplier;
      key ^= key >> 32;
    };
    for (const int64_t size : run.sizes) put(size);
    for (const Tensors* tensors : {&run.saved, &run.tangents}) {
      for (const at::Tensor& tensor : *tensors) {
        if (!tensor.defined()) {
          put(-1);
          continue;
        }
        for (const int64_t size : tensor.sizes()) put(size);
      }
    }
    return key;
  }

  bool TooMany() const {
    if (plans_.size() <= 1) return false;
    return (most_ > 0 && plans_.size() > most_) || held_bytes_ > most_bytes_;
  }

  void Forget(Entries::iterator entry) {
    held_bytes_ -= entry->plan->held_bytes;
    const auto [begin, end] = by_key_.equal_range(entry->key);
    for (auto at = begin; at != end; ++at) {
      if (at->second != entry) continue;
      by_key_.erase(at);
      break;
    }
    plans_.erase(entry);
  }

  const size_t most_, most_bytes_;
  size_t held_bytes_ = 0;
  Entries plans_;  // the one used last first
  std::unordered_multimap<size_t, Entries::iterator> by_key_;
};

}  // namespace retrograd
