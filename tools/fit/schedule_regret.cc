#include "tools/fit/schedule_regret.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "absl/strings/str_format.h"
#include "tools/fit/model_error.h"

namespace retrograd {
namespace {

// Pairs that differ, and those of them that are predicted in order.
void CountPairs(const TimedSchedules& k, int64_t& pairs, int64_t& right) {
  for (size_t i = 0; i < k.measured_us.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const double a = k.measured_us[i], b = k.measured_us[j];
      if (std::abs(a - b) <= kPairShare * std::min(a, b)) continue;
      ++pairs;
      const double order = k.predicted_us[i] - k.predicted_us[j];
      right += (a > b ? order > 0 : order < 0) ? 1 : 0;
    }
  }
}

}  // namespace

double RegretOf(const TimedSchedules& k) {
  if (k.measured_us.empty()) return 1;
  const auto chosen = std::min_element(k.predicted_us.begin(), k.predicted_us.end());
  const double least = *std::min_element(k.measured_us.begin(), k.measured_us.end());
  return k.measured_us[static_cast<size_t>(chosen - k.predicted_us.begin())] /
         std::max(least, 1e-6);
}

RankingError RankingErrorOf(absl::Span<const TimedSchedules> kernels) {
  RankingError all{.kernels = static_cast<int64_t>(kernels.size())};
  int64_t right = 0;
  double regrets = 0;
  for (const TimedSchedules& k : kernels) {
    const double regret = RegretOf(k);
    regrets += regret;
    all.worst_regret = std::max(all.worst_regret, regret);
    all.schedules += static_cast<int64_t>(k.measured_us.size());
    for (size_t i = 0; i < k.measured_us.size(); ++i) {
      all.error +=
          std::abs(std::log(std::max(k.predicted_us[i], 1e-6) / std::max(k.measured_us[i], 1e-6)));
    }
    CountPairs(k, all.pairs, right);
  }
  if (!kernels.empty()) all.mean_regret = regrets / static_cast<double>(all.kernels);
  if (all.schedules > 0) all.error /= static_cast<double>(all.schedules);
  if (all.pairs > 0) all.right_order = static_cast<double>(right) / static_cast<double>(all.pairs);
  return all;
}

std::string PrintRankingError(const RankingError& e) {
  return absl::StrFormat(
      "%d kernels, %d schedules: chosen ones %.1f%% over the best (worst %.1f%%), %.0f%% of pairs "
      "in "
      "order, error %.1f%%",
      e.kernels, e.schedules, 100 * (e.mean_regret - 1), 100 * (e.worst_regret - 1),
      100 * e.right_order, 100 * e.error);
}

}  // namespace retrograd
