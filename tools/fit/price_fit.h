// Numbers of a device spec, fitted so that prices come close to measured times.
#ifndef RETROGRAD_TOOLS_FIT_PRICE_FIT_H_
#define RETROGRAD_TOOLS_FIT_PRICE_FIT_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "fusion/device/device_numbers.h"
#include "fusion/device/device_spec.h"

namespace retrograd {

// Something that was timed and has a price.
struct PricedSample {
  double measured_us = 0;
  std::function<int64_t(const DeviceSpec&)> price_ps;
  int kernel = -1;  // schedules of one kernel share a number; -1: a work of its own
};

// Mean of |log(price / measured)|: 0.1 is 10% either way. Of a kernel's schedules those count most
// that take little longer than its best: a planner asks which of them is.
double MeanLogError(absl::Span<const PricedSample> samples, const DeviceSpec& device);

// What is lost by taking the schedules with the least prices, as a mean over kernels of
// log(taken / best). Schedules whose prices lie within a few percent share the vote, so that the
// figure changes smoothly.
double MeanLogRegret(absl::Span<const PricedSample> samples, const DeviceSpec& device);

// What a fit makes least.
inline double FitLoss(absl::Span<const PricedSample> samples, const DeviceSpec& device) {
  return MeanLogError(samples, device) + 4 * MeanLogRegret(samples, device);
}

struct FittedNumbers {
  std::vector<DeviceNumber> numbers;
  double error_before = 0, error_after = 0;    // MeanLogError
  double regret_before = 0, regret_after = 0;  // MeanLogRegret
  // Names of the numbers that stopped at an end of the range, so that where they would have gone is
  // not known: no measurements.
  std::vector<std::string> at_range;
};

// Those samples of whose price the number makes up most, and at least this share: they show it,
// whatever else the prices are off by. Each counts as a work of its own.
inline constexpr size_t kMostIsolating = 8;
inline constexpr double kIsolatingShare = 0.2;
absl::StatusOr<std::vector<PricedSample>> Isolating(absl::string_view text,
                                                    const std::string& field,
                                                    absl::Span<const PricedSample> samples);

// One number after another is moved to where the loss is least, within a factor of kFitRange of
// what the spec says, until none moves. `text` is the spec's text form.
inline constexpr double kFitRange = 4;
absl::StatusOr<FittedNumbers> FitNumbers(absl::string_view text,
                                         absl::Span<const std::string> fields,
                                         absl::Span<const PricedSample> samples);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_FIT_PRICE_FIT_H_
