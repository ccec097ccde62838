// Numbers of a device spec, fitted so that prices come close to measured times.
#ifndef RETROGRAD_TOOLS_PRICE_FIT_H_
#define RETROGRAD_TOOLS_PRICE_FIT_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "fusion/kernel/device_numbers.h"
#include "fusion/kernel/device_spec.h"

namespace retrograd {

// Something that was timed and has a price.
struct PricedSample {
  double measured_us = 0;
  std::function<int64_t(const DeviceSpec&)> price_ps;
};

// Mean of |log(price / measured)|: 0.1 is 10% either way.
double MeanLogError(absl::Span<const PricedSample> samples, const DeviceSpec& device);

struct FittedNumbers {
  std::vector<DeviceNumber> numbers;
  double error_before = 0, error_after = 0;  // MeanLogError
};

// One number after another is moved to where the error is least, within a factor of kFitRange of
// what the spec says, until none moves. `text` is the spec's text form.
inline constexpr double kFitRange = 4;
absl::StatusOr<FittedNumbers> FitNumbers(absl::string_view text,
                                         absl::Span<const std::string> fields,
                                         absl::Span<const PricedSample> samples);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_PRICE_FIT_H_
