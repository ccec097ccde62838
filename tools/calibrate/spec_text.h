// The text form of a device spec with some numbers replaced, its comments and everything else kept.
#ifndef RETROGRAD_TOOLS_CALIBRATE_SPEC_TEXT_H_
#define RETROGRAD_TOOLS_CALIBRATE_SPEC_TEXT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace retrograd {

struct SpecNumber {
  std::string field;  // of device_spec.proto: "row_batch_us"
  double value = 0;
  std::string source;  // where it comes from
};

// Each number stands on a line of its own, as `field { value: 1.5 source: "..." }`; one that the
// text lacks is added at its end. `kept_note` ends the lines of all other numbers, as a comment.
absl::StatusOr<std::string> WithSpecNumbers(absl::string_view text,
                                            absl::Span<const SpecNumber> numbers,
                                            absl::string_view kept_note);

// With these lines of the interference table in the place of those that it has.
std::string WithInterference(absl::string_view text, absl::Span<const std::string> rows);

// With another name, arch and model, and calibrated set: whose spec it is. The device says of
// itself what model it is; an empty arch keeps that of the text.
std::string WithSpecName(absl::string_view text, absl::string_view name, absl::string_view arch,
                         absl::string_view model);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_CALIBRATE_SPEC_TEXT_H_
