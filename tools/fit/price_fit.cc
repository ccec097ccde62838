// Coordinate descent over steps that get finer: prices are maxima of several terms, so that there
// is no gradient worth the name.
#include "tools/fit/price_fit.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

#include "absl/strings/str_cat.h"
#include "fusion/kernel/ir/scale.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

constexpr double kSteps[] = {1.5, 1.2, 1.08, 1.03};
constexpr int kMostRounds = 8;    // of one step
constexpr double kGain = 0.9995;  // a move that wins less is noise
// What a number must win to be moved e-fold from where it was: numbers that hardly matter to the
// samples stay.
constexpr double kPull = 0.02;
constexpr double kNudge = 1.1;  // of a number, to see what it makes up of a price
// A schedule that takes so much longer than the best of its kernel (as a logarithm) counts half.
constexpr double kHalfAsMuch = 0.15;
// Prices that are nearer than this (as a logarithm) are about even.
constexpr double kEven = 0.02;

absl::StatusOr<DeviceSpec> DeviceWith(absl::string_view text,
                                      const std::vector<DeviceNumber>& numbers) {
  RG_ASSIGN_OR_RETURN(const std::string changed, WithDeviceNumbers(text, "fit", numbers));
  return ParseDeviceSpec(changed, "fit");
}

absl::StatusOr<std::vector<DeviceNumber>> NumbersOf(absl::string_view text,
                                                    absl::Span<const std::string> fields) {
  RG_ASSIGN_OR_RETURN(const std::vector<DeviceNumber> all, DeviceNumbers(text, "fit"));
  std::vector<DeviceNumber> numbers;
  for (const std::string& field : fields) {
    const auto found = std::find_if(all.begin(), all.end(),
                                    [&](const DeviceNumber& n) { return n.name == field; });
    if (found == all.end()) return absl::NotFoundError(absl::StrCat("no number is called ", field));
    numbers.push_back(*found);
  }
  return numbers;
}

// Narrower accesses are never the better ones.
bool Sensible(const DeviceSpec& d) {
  return d.efficiency_8_ppm <= kPpm && d.efficiency_4_ppm <= d.efficiency_8_ppm &&
         d.efficiency_2_ppm <= d.efficiency_4_ppm;
}

// Schedules of each kernel, or a sample of its own.
std::vector<std::vector<const PricedSample*>> ByKernel(absl::Span<const PricedSample> samples) {
  std::map<int, std::vector<const PricedSample*>> kernels;
  std::vector<std::vector<const PricedSample*>> all;
  for (const PricedSample& s : samples) {
    if (s.kernel < 0) {
      all.push_back({&s});
    } else {
      kernels[s.kernel].push_back(&s);
    }
  }
  for (auto& [number, schedules] : kernels) all.push_back(std::move(schedules));
  return all;
}

double LogOf(double us) { return std::log(std::max(us, 1e-6)); }
double LogPrice(const PricedSample& s, const DeviceSpec& device) {
  return LogOf(1e-6 * static_cast<double>(s.price_ps(device)));
}

double LogOfBest(const std::vector<const PricedSample*>& kernel) {
  double best = LogOf(kernel[0]->measured_us);
  for (const PricedSample* s : kernel) best = std::min(best, LogOf(s->measured_us));
  return best;
}

// Whether the finest step would leave the range.
bool AtRange(double value, double start) {
  const double step = *std::min_element(std::begin(kSteps), std::end(kSteps));
  return std::max(value / start, start / value) * step > kFitRange;
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
  double all = 0;
  const auto kernels = ByKernel(samples);
  for (const auto& kernel : kernels) {
    const double best = LogOfBest(kernel);
    double sum = 0, weights = 0;
    for (const PricedSample* s : kernel) {
      const double measured = LogOf(s->measured_us);
      const double weight = 1 / (1 + (measured - best) / kHalfAsMuch);
      sum += weight * std::abs(LogPrice(*s, device) - measured);
      weights += weight;
    }
    all += sum / weights;
  }
  return kernels.empty() ? 0 : all / static_cast<double>(kernels.size());
}

double MeanLogRegret(absl::Span<const PricedSample> samples, const DeviceSpec& device) {
  double all = 0;
  int64_t several = 0;
  for (const auto& kernel : ByKernel(samples)) {
    if (kernel.size() < 2) continue;
    ++several;
    const double best = LogOfBest(kernel);
    std::vector<double> prices;
    for (const PricedSample* s : kernel) prices.push_back(LogPrice(*s, device));
    const double least = *std::min_element(prices.begin(), prices.end());
    double lost = 0, votes = 0;
    for (size_t i = 0; i < kernel.size(); ++i) {
      const double vote = std::exp(-(prices[i] - least) / kEven);
      lost += vote * (LogOf(kernel[i]->measured_us) - best);
      votes += vote;
    }
    all += lost / votes;
  }
  return several == 0 ? 0 : all / static_cast<double>(several);
}

absl::StatusOr<std::vector<PricedSample>> Isolating(absl::string_view text,
                                                    const std::string& field,
                                                    absl::Span<const PricedSample> samples) {
  RG_ASSIGN_OR_RETURN(std::vector<DeviceNumber> number, NumbersOf(text, {&field, 1}));
  RG_ASSIGN_OR_RETURN(const DeviceSpec device, DeviceWith(text, number));
  const double value = number[0].value;
  number[0].value = value * kNudge;
  absl::StatusOr<DeviceSpec> nudged = DeviceWith(text, number);
  if (!nudged.ok()) {  // at the end of its range
    number[0].value = value / kNudge;
    nudged = DeviceWith(text, number);
  }
  RG_RETURN_IF_ERROR(nudged.status());
  std::vector<std::pair<double, const PricedSample*>> shares;
  for (const PricedSample& s : samples) {
    const double share = (LogPrice(s, *nudged) - LogPrice(s, device)) / std::log(kNudge);
    if (std::abs(share) >= kIsolatingShare) shares.emplace_back(-std::abs(share), &s);
  }
  std::stable_sort(shares.begin(), shares.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  if (shares.size() > kMostIsolating) shares.resize(kMostIsolating);
  std::vector<PricedSample> isolating;
  for (const auto& [share, s] : shares) {
    isolating.push_back(*s);
    isolating.back().kernel = -1;
  }
  return isolating;
}

absl::StatusOr<FittedNumbers> FitNumbers(absl::string_view text,
                                         absl::Span<const std::string> fields,
                                         absl::Span<const PricedSample> samples) {
  FittedNumbers fit;
  RG_ASSIGN_OR_RETURN(fit.numbers, NumbersOf(text, fields));
  const std::vector<DeviceNumber> start = fit.numbers;
  RG_ASSIGN_OR_RETURN(const DeviceSpec before, DeviceWith(text, start));
  fit.error_before = MeanLogError(samples, before);
  fit.regret_before = MeanLogRegret(samples, before);
  double least = FitLoss(samples, before);  // with the pull
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
          const absl::StatusOr<DeviceSpec> device = DeviceWith(text, fit.numbers);
          const bool possible = device.ok() && Sensible(*device);
          const double pulled =
              possible ? FitLoss(samples, *device) + PullOf(fit.numbers, start) : 0;
          if (possible && pulled < kGain * least) {
            least = pulled;
            moved = true;
          } else {
            fit.numbers[f].value = old;
          }
        }
      }
    }
  }
  RG_ASSIGN_OR_RETURN(const DeviceSpec after, DeviceWith(text, fit.numbers));
  fit.error_after = MeanLogError(samples, after);
  fit.regret_after = MeanLogRegret(samples, after);
  for (size_t i = 0; i < start.size(); ++i) {
    if (AtRange(fit.numbers[i].value, start[i].value)) fit.at_range.push_back(start[i].name);
  }
  return fit;
}

}  // namespace retrograd
