#include "tools/support/byte_size.h"

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace retrograd {
namespace {

struct Unit {
  absl::string_view name;
  double bytes;
};
constexpr Unit kUnits[] = {
    {"", 1},      {"B", 1},      {"KB", 1e3},      {"MB", 1e6},      {"GB", 1e9},
    {"TB", 1e12}, {"KiB", 1024}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1024.0 * (1 << 30)},
};

}  // namespace

absl::StatusOr<int64_t> ParseByteSize(absl::string_view text) {
  const absl::string_view given = absl::StripAsciiWhitespace(text);
  const size_t digits = given.find_first_not_of("0123456789.");
  const absl::string_view number = given.substr(0, digits);
  const absl::string_view unit = digits == absl::string_view::npos
                                     ? ""
                                     : absl::StripLeadingAsciiWhitespace(given.substr(digits));
  double value = 0;
  for (const Unit& known : kUnits) {
    if (unit != known.name || !absl::SimpleAtod(number, &value)) continue;
    const double bytes = value * known.bytes;
    if (bytes >= 1 && bytes < 9e18) return static_cast<int64_t>(bytes);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", text,
      "' is no size: write a positive number of bytes, KiB, MiB, GiB, KB, MB or GB, as in 2GiB"));
}

}  // namespace retrograd
