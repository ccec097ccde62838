#include "tools/fit/model_error.h"

#include <cmath>
#include <cstddef>

namespace retrograd {

ModelError ErrorOf(const std::vector<double>& predicted, const std::vector<double>& measured) {
  std::vector<size_t> counted;
  ModelError error;
  for (size_t i = 0; i < measured.size(); ++i) {
    if (measured[i] <= kLeastCountedUs) continue;
    counted.push_back(i);
    const double off = (predicted[i] - measured[i]) / measured[i];
    error.mean_absolute += std::abs(off);
    error.mean_signed += off;
  }
  error.steps = static_cast<int64_t>(counted.size());
  if (counted.empty()) return error;
  error.mean_absolute /= static_cast<double>(counted.size());
  error.mean_signed /= static_cast<double>(counted.size());
  int64_t right = 0;
  for (size_t i = 0; i < counted.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const double a = measured[counted[i]], b = measured[counted[j]];
      if (std::abs(a - b) <= kPairShare * std::min(a, b)) continue;
      ++error.pairs;
      const double order = predicted[counted[i]] - predicted[counted[j]];
      right += (a > b ? order > 0 : order < 0) ? 1 : 0;
    }
  }
  if (error.pairs > 0) {
    error.right_order = static_cast<double>(right) / static_cast<double>(error.pairs);
  }
  return error;
}

}  // namespace retrograd
