#include "tools/support/size_range.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace retrograd {
namespace {

constexpr int64_t kWidestStep = 8;  // elements of 2 bytes in 16

absl::Status Refuse(absl::string_view text, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("--range ", text.substr(0, 200), ": ", why));
}

}  // namespace

std::string SizeRange::Print() const {
  return absl::StrCat(name, " = ", low, " to ", high,
                      step == 1 ? "" : absl::StrCat(" in steps of ", step));
}

absl::StatusOr<SizeRange> ParseSizeRange(absl::string_view text) {
  constexpr absl::string_view kForm =
      "write NAME=LOW..HIGH or NAME=LOW..HIGH:STEP, of whole numbers";
  const size_t equals = text.find('='), dots = text.find("..");
  if (equals == 0 || equals == absl::string_view::npos || dots == absl::string_view::npos ||
      dots < equals || text.find(',') != absl::string_view::npos) {
    return Refuse(text, kForm);
  }
  SizeRange range{.name = std::string(text.substr(0, equals))};
  absl::string_view high = text.substr(dots + 2);
  int64_t step = 0;
  const size_t colon = high.find(':');
  if (colon != absl::string_view::npos) {
    if (!absl::SimpleAtoi(high.substr(colon + 1), &step)) return Refuse(text, kForm);
    if (step < 1) return Refuse(text, "the step is less than 1");
    high = high.substr(0, colon);
  }
  if (!absl::SimpleAtoi(text.substr(equals + 1, dots - equals - 1), &range.low) ||
      !absl::SimpleAtoi(high, &range.high)) {
    return Refuse(text, kForm);
  }
  if (range.low < 0) return Refuse(text, "a size is at least 0");
  if (range.low > range.high) return Refuse(text, "the low end is above the high one");
  range.step = step > 0 ? step : std::gcd(std::gcd(range.low, range.high), kWidestStep);
  range.high -= (range.high - range.low) % range.step;
  return range;
}

std::vector<int64_t> SamplesOf(const SizeRange& range, int most) {
  const auto low = static_cast<double>(std::max<int64_t>(range.low, 1));
  const double ratio = static_cast<double>(range.high) / low;
  std::vector<int64_t> samples = {range.low};
  for (int i = 1; i < most - 1; ++i) {
    const double size = low * std::pow(ratio, static_cast<double>(i) / (most - 1));
    const auto steps =
        std::llround((size - static_cast<double>(range.low)) / static_cast<double>(range.step));
    const int64_t sample = range.low + std::max<int64_t>(steps, 0) * range.step;
    if (sample > samples.back() && sample < range.high) samples.push_back(sample);
  }
  if (range.high > samples.back()) samples.push_back(range.high);
  return samples;
}

}  // namespace retrograd
