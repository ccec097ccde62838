// Coordinate descent over steps that get finer: prices are maxima of several terms, so that there
// is no gradient worth the name.
#include "tools/price_fit.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "graph/status.h"

namespace retrograd {
namespace {

constexpr double kSteps[] = {1.5, 1.2, 1.08, 1.03};
constexpr int kMostRounds = 8;    // of one step
constexpr double kGain = 0.9995;  // a move that wins less is noise
// What a number must win to be moved e-fold from where it was: numbers that hardly matter to the
// samples stay.
constexpr double kPull = 0.02;

absl::StatusOr<double> ErrorWith(absl::string_view text, const std::vector<DeviceNumber>& numbers,
                                 absl::Span<const PricedSample> samples) {
  RG_ASSIGN_OR_RETURN(const std::string changed, WithDeviceNumbers(text, "fit", numbers));
  RG_ASSIGN_OR_RETURN(const DeviceSpec device, ParseDeviceSpec(changed, "fit"));
  return MeanLogError(samples, device);
}

double PullOf(const std::vector<DeviceNumber>& numbers, const std::vector<DeviceNumber>& start) {
  double pull = 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    pull += kPull * std::abs(std::log(numbers[i].value / start[i].value));
  }
  return pull;
}

}  // namespace

double MeanLogError(absl::Span<const PricedSample> samples, const DeviceSpec& device) {
  double sum = 0;
  for (const PricedSample& s : samples) {
    const double us = std::max(1e-6 * static_cast<double>(s.price_ps(device)), 1e-6);
    sum += std::abs(std::log(us / std::max(s.measured_us, 1e-6)));
  }
  return samples.empty() ? 0 : sum / static_cast<double>(samples.size());
}

absl::StatusOr<FittedNumbers> FitNumbers(absl::string_view text,
                                         absl::Span<const std::string> fields,
                                         absl::Span<const PricedSample> samples) {
  RG_ASSIGN_OR_RETURN(const std::vector<DeviceNumber> all, DeviceNumbers(text, "fit"));
  FittedNumbers fit;
  for (const std::string& field : fields) {
    const auto found = std::find_if(all.begin(), all.end(),
                                    [&](const DeviceNumber& n) { return n.name == field; });
    if (found == all.end()) return absl::NotFoundError(absl::StrCat("no number is called ", field));
    fit.numbers.push_back(*found);
  }
  const std::vector<DeviceNumber> start = fit.numbers;
  RG_ASSIGN_OR_RETURN(fit.error_before, ErrorWith(text, fit.numbers, samples));
  fit.error_after = fit.error_before;
  double least = fit.error_before;  // with the pull
  for (double step : kSteps) {
    bool moved = true;
    for (int round = 0; round < kMostRounds && moved; ++round) {
      moved = false;
      for (size_t f = 0; f < fit.numbers.size(); ++f) {
        for (double factor : {step, 1 / step}) {
          const double old = fit.numbers[f].value;
          const double tried = old * factor, range = tried / start[f].value;
          if (range > kFitRange || range < 1 / kFitRange) continue;
          fit.numbers[f].value = tried;
          const absl::StatusOr<double> error = ErrorWith(text, fit.numbers, samples);
          const double pulled = error.ok() ? *error + PullOf(fit.numbers, start) : 0;
          if (error.ok() && pulled < kGain * least) {  // not ok: no device has that number
            fit.error_after = *error;
            least = pulled;
            moved = true;
          } else {
            fit.numbers[f].value = old;
          }
        }
      }
    }
  }
  return fit;
}

}  // namespace retrograd
