#include "runtime/memory/phases.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_set.h"

namespace retrograd {
namespace {

constexpr int kTargets = 24;  // peaks that are tried between that of one phase and the least

using Cuts = std::vector<uint32_t>;

// Tells what is held in the worst phase of many cuts of the same steps: what begins and ends is
// sorted once.
class Peaks {
 public:
  // A holding ends at the number of steps at the latest.
  Peaks(uint32_t steps, absl::Span<const Holding> callers, absl::Span<const Holding> inside)
      : callers_(callers), inside_(inside), phase_of_(steps + 1) {
    for (uint32_t i = 0; i < inside.size(); ++i) {
      changes_.push_back({inside[i].first, inside[i].bytes, i});
      changes_.push_back({inside[i].last + 1, -inside[i].bytes, i});
    }
    // At one step what ends comes first.
    std::sort(changes_.begin(), changes_.end(), [](const Change& a, const Change& b) {
      return std::tie(a.step, a.bytes) < std::tie(b.step, b.bytes);
    });
    block_of_.resize(inside.size());
  }

  // Bytes held in the worst phase: by the caller, and by the blocks of the arena. A block is of all
  // storages that live in the same phases, and has as many bytes as they at any step.
  int64_t Of(const Cuts& cuts) {
    const size_t phases = cuts.size();
    for (size_t p = 0; p < phases; ++p) {
      const auto begin = phase_of_.begin() + cuts[p];
      std::fill(begin, phase_of_.end(), static_cast<uint32_t>(p));
    }
    held_.assign(phases, 0);
    for (const Holding& h : callers_) Hold(phase_of_[h.first], phase_of_[h.last], h.bytes);
    blocks_.assign(phases * phases, {});
    for (size_t i = 0; i < inside_.size(); ++i) {
      block_of_[i] = phase_of_[inside_[i].first] * phases + phase_of_[inside_[i].last];
    }
    for (const Change& change : changes_) {
      Block& block = blocks_[block_of_[change.holding]];
      block.most = std::max(block.most, block.alive += change.bytes);
    }
    for (size_t first = 0; first < phases; ++first) {
      for (size_t last = first; last < phases; ++last) {
        Hold(first, last, blocks_[first * phases + last].most);
      }
    }
    return *std::max_element(held_.begin(), held_.end());
  }

 private:
  struct Change {
    uint32_t step = 0;
    int64_t bytes = 0;
    uint32_t holding = 0;
  };
  struct Block {
    int64_t alive = 0, most = 0;
  };

  void Hold(size_t first, size_t last, int64_t bytes) {
    for (size_t phase = first; phase <= last; ++phase) held_[phase] += bytes;
  }

  absl::Span<const Holding> callers_, inside_;
  std::vector<Change> changes_;     // of what is inside
  std::vector<uint32_t> phase_of_;  // by step; what follows is scratch, too
  std::vector<size_t> block_of_;    // by holding inside
  std::vector<int64_t> held_;       // by phase
  std::vector<Block> blocks_;       // by first and last phase
};

// The longest phases, one behind the other, none of which holds more than a target.
class Cutter {
 public:
  Cutter(uint32_t steps, absl::Span<const Holding> callers, absl::Span<const Holding> inside)
      : steps_(steps), begins_(steps), inputs_(steps + 1, 0), outputs_(steps, 0) {
    for (const Holding& h : inside) begins_[h.first].push_back(h);
    for (const Holding& h : callers) {
      if (h.bytes == 0) continue;
      if (h.first == 0 && h.last < steps) {
        for (uint32_t s = 0; s <= h.last; ++s) inputs_[s] += h.bytes;
      } else {
        for (uint32_t s = std::min(h.first, steps - 1); s < steps; ++s) outputs_[s] += h.bytes;
      }
    }
  }

  // At least this much is held at some step, however many phases there are.
  int64_t Least() {
    int64_t least = 0;
    Restart();
    for (uint32_t s = 0; s < steps_; ++s) {
      least = std::max(least, Alone(s));
      Enter(s, s + 1);
    }
    return least;
  }

  // Empty if more than `most` phases are needed, or none suffice.
  Cuts For(int64_t target, size_t most) {
    Cuts cuts;
    Restart();
    uint32_t step = 0;
    while (step < steps_) {
      if (cuts.size() == most || Alone(step) > target) return {};
      cuts.push_back(step);
      const int64_t base = inputs_[step] + Crossing(step);
      std::vector<int64_t> alive(steps_ - step, 0);
      int64_t local = 0;
      const uint32_t begin = step;
      for (; step < steps_; ++step) {
        for (const Holding& h : begins_[step]) {
          for (uint32_t s = step; s <= h.last; ++s) {
            local = std::max(local, alive[s - begin] += h.bytes);
          }
        }
        if (step > begin && base + local + outputs_[step] > target) break;
      }
      Enter(begin, step);
    }
    return cuts;
  }

 private:
  void Restart() { crossing_.assign(steps_ + 1, 0); }
  // What the arena holds at the step from steps before those that were not entered.
  int64_t Crossing(uint32_t step) const { return crossing_[step]; }
  void Enter(uint32_t begin, uint32_t end) {
    for (uint32_t step = begin; step < end; ++step) {
      for (const Holding& h : begins_[step]) {
        for (uint32_t s = end; s <= h.last && s <= steps_; ++s) crossing_[s] += h.bytes;
      }
    }
  }
  // What a phase of this step alone holds.
  int64_t Alone(uint32_t step) const {
    int64_t bytes = inputs_[step] + outputs_[step] + Crossing(step);
    for (const Holding& h : begins_[step]) bytes += h.bytes;
    return bytes;
  }

  uint32_t steps_;
  std::vector<std::vector<Holding>> begins_;  // by first step
  std::vector<int64_t> inputs_, outputs_;     // held by the caller, by step
  std::vector<int64_t> crossing_;             // by step: from the phases that were entered
};

// What all of one phase's peak is worth, as a part of the run's time.
double WorthOf(int64_t peak, const PhaseOptions& options) {
  if (peak >= options.scarce_bytes) return 1;
  return static_cast<double>(peak) / static_cast<double>(options.scarce_bytes);
}

// Tries cuts and keeps the best: of the least sum of time lost and of what the peak is worth.
class Chooser {
 public:
  // least: no cuts hold less.
  Chooser(Peaks peaks, int64_t least, const PhaseOptions& options, int64_t makespan_ps)
      : peaks_(std::move(peaks)),
        least_(least),
        most_(static_cast<size_t>(options.most)),
        whole_(peaks_.Of(best_)),
        worth_(WorthOf(whole_, options)),
        price_(worth_),
        begin_(static_cast<double>(options.begin_ps) /
               static_cast<double>(std::max<int64_t>(makespan_ps, 1))) {}

  int64_t peak() const { return whole_; }  // of one phase
  size_t most() const { return most_; }
  const Cuts& best() const { return best_; }

  bool Try(const Cuts& cuts) {
    if (cuts.empty() || cuts.size() > most_ || PriceOf(least_, cuts) >= price_) return false;
    // What was tried is no better than the best is.
    if (!tried_.insert(cuts).second) return false;
    const double price = PriceOf(peaks_.Of(cuts), cuts);
    if (price >= price_) return false;
    price_ = price;
    best_ = cuts;
    return true;
  }

  // Moves, adds and takes away single cuts as long as that helps.
  void Improve(absl::Span<const uint32_t> places) {
    for (int round = 0; round < kRounds; ++round) {
      const Cuts before = best_;
      bool better = false;
      for (size_t c = 1; c <= before.size(); ++c) {
        Cuts others = before;
        if (c < before.size()) others.erase(others.begin() + static_cast<int64_t>(c));
        better = Try(others) || better;
        for (uint32_t place : places) better = Try(With(others, place)) || better;
      }
      if (!better) return;
    }
  }

 private:
  static constexpr int kRounds = 8;

  double PriceOf(int64_t peak, const Cuts& cuts) const {
    return worth_ * static_cast<double>(peak) / static_cast<double>(whole_) +
           begin_ * static_cast<double>(cuts.size() - 1);
  }

  // Empty if the place is a cut already.
  static Cuts With(const Cuts& cuts, uint32_t place) {
    const auto at = std::lower_bound(cuts.begin(), cuts.end(), place);
    if (at != cuts.end() && *at == place) return {};
    Cuts more(cuts.begin(), at);
    more.push_back(place);
    more.insert(more.end(), at, cuts.end());
    return more;
  }

  absl::flat_hash_set<Cuts> tried_;
  Cuts best_ = {0};
  Peaks peaks_;
  int64_t least_;
  size_t most_;
  int64_t whole_;
  double worth_, price_, begin_;
};

// Steps before which a phase may begin, not many: those behind which the same part of all bytes is
// let go of.
std::vector<uint32_t> Places(uint32_t steps, absl::Span<const Holding> holdings) {
  constexpr int64_t kPlaces = 48;
  std::vector<int64_t> goes(steps, 0);
  int64_t all = 0, gone = 0, next = 1;
  for (const Holding& h : holdings) {
    goes[h.last] += h.bytes;
    all += h.bytes;
  }
  std::vector<uint32_t> places;
  for (uint32_t s = 0; s + 1 < steps; ++s) {
    gone += goes[s];
    if (gone * kPlaces < next * all) continue;
    places.push_back(s + 1);
    next = gone * kPlaces / std::max<int64_t>(all, 1) + 1;
  }
  return places;
}

}  // namespace

PhaseOptions PhaseOptionsOf(const DeviceSpec& spec, int most) {
  return {.most = most,
          .begin_ps = 8 * spec.launch_stream_ps,
          .scarce_bytes = spec.scarce_memory_bytes};
}

std::vector<uint32_t> ChoosePhases(const StreamSchedule& schedule,
                                   absl::Span<const Holding> callers,
                                   absl::Span<const Holding> inside, const PhaseOptions& options) {
  const auto steps = static_cast<uint32_t>(schedule.steps.size());
  if (options.most <= 1 || steps < 2) return {0};
  std::vector<Holding> held(callers.begin(), callers.end());
  for (Holding& h : held) {  // what stays to the end belongs to the last step
    h.first = std::min(h.first, steps - 1);
    h.last = std::min(h.last, steps - 1);
  }
  Cutter cutter(steps, callers, inside);
  const int64_t least = cutter.Least();
  Chooser chooser(Peaks(steps, held, inside), least, options, schedule.makespan_ps);
  const int64_t most = chooser.peak();
  if (most == 0) return {0};
  for (int i = 0; i < kTargets; ++i) {
    chooser.Try(cutter.For(least + (most - least) / kTargets * i, chooser.most()));
  }
  chooser.Improve(Places(steps, held));
  return chooser.best();
}

}  // namespace retrograd
