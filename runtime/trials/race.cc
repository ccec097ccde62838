#include "runtime/trials/race.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

// Rounds behind which runners are looked at: few for what is plain, more for what is close.
constexpr int kFirstLook = 3, kLooks[] = {8, 12, 16, 24, 32};

double Median(std::vector<double> times) {
  const auto middle = times.begin() + static_cast<ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

class Runners {
 public:
  Runners(size_t count, const RaceOptions& options)
      : options_(options), times_(count), runs_(count, true) {}

  bool runs(size_t runner) const { return runs_[runner]; }
  std::vector<double>& times(size_t runner) { return times_[runner]; }
  double median(size_t runner) const { return Median(times_[runner]); }

  bool default_is_alone() const { return std::count(runs_.begin(), runs_.end(), true) <= 1; }

  // Behind the first rounds: each time of theirs was longer than all of the leader's.
  void DropHopeless() {
    const size_t leader = Leader();
    const double longest = *absl::c_max_element(times_[leader]);
    for (size_t i = 1; i < times_.size(); ++i) {
      if (runs_[i] && *absl::c_min_element(times_[i]) > (1 + options_.hopeless) * longest) {
        runs_[i] = false;
      }
    }
  }

  // Those that win nothing over the default, and those that the leader leaves behind.
  void DropSlow() {
    const size_t leader = Leader();
    for (size_t i = 1; i < times_.size(); ++i) {
      if (!runs_[i]) continue;
      const bool wins = median(i) < (1 - options_.least_win) * median(0);
      if (!wins || (i != leader && IsFaster(leader, i))) runs_[i] = false;
    }
  }

  // Whether the leader's times leave no doubt.
  bool Decided() const {
    const size_t leader = Leader();
    return leader != 0 && IsFaster(leader, 0);
  }

  size_t Winner() const { return Decided() ? Leader() : 0; }

 private:
  size_t Leader() const {
    size_t leader = 0;
    for (size_t i = 1; i < times_.size(); ++i) {
      if (runs_[i] && median(i) < median(leader)) leader = i;
    }
    return leader;
  }

  bool IsFaster(size_t one, size_t other) const {
    int inversions = 0;
    for (const double mine : times_[one]) {
      for (const double theirs : times_[other]) inversions += mine >= theirs;
    }
    return RankSumError(static_cast<int>(times_[one].size()), inversions) <= options_.error;
  }

  const RaceOptions options_;
  std::vector<std::vector<double>> times_;
  std::vector<bool> runs_;
};

}  // namespace

double RankSumError(int n, int inversions) {
  // ways[j][u]: orders of i times of the one and j of the other with u inversions, by the longest.
  const size_t most = static_cast<size_t>(inversions) + 1;
  std::vector<std::vector<double>> ways(n + 1, std::vector<double>(most, 0));
  for (std::vector<double>& of : ways) of[0] = 1;
  double all = 1;  // of 2 n times, n over all places
  for (int i = 1; i <= n; ++i) {
    all = all * (n + i) / i;
    for (int j = 1; j <= n; ++j) {
      // The longest is the one's, which stands behind j of the other, or the other's.
      std::vector<double> next(most, 0);
      for (size_t u = 0; u < most; ++u) {
        next[u] = ways[j - 1][u] + (u >= static_cast<size_t>(j) ? ways[j][u - j] : 0);
      }
      ways[j] = std::move(next);
    }
  }
  double sum = 0;
  for (const double of : ways[n]) sum += of;
  return sum / all;
}

absl::StatusOr<RaceResult> Race(size_t count,
                                absl::FunctionRef<absl::StatusOr<double>(size_t runner)> sample,
                                const RaceOptions& options) {
  RG_CHECK(count > 0);
  Runners runners(count, options);
  for (int round = 1; round <= options.most_rounds; ++round) {
    for (size_t k = 0; k < count; ++k) {
      const size_t i = (k + static_cast<size_t>(round)) % count;  // everyone stands first in turn
      if (!runners.runs(i)) continue;
      RG_ASSIGN_OR_RETURN(const double us, sample(i));
      runners.times(i).push_back(us);
    }
    if (round == kFirstLook) runners.DropHopeless();
    if (absl::c_linear_search(kLooks, round)) {
      runners.DropSlow();
      if (runners.Decided()) break;
    }
    if (round >= kFirstLook && runners.default_is_alone()) break;
  }
  RaceResult result{.winner = runners.Winner()};
  for (size_t i = 0; i < count; ++i) result.us.push_back(runners.median(i));
  return result;
}

}  // namespace retrograd
