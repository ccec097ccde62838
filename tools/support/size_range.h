// The sizes that --range asks about: "s0=64..4096", or "s0=64..4096:1" to go through them one by
// one.
#ifndef RETROGRAD_TOOLS_SUPPORT_SIZE_RANGE_H_
#define RETROGRAD_TOOLS_SUPPORT_SIZE_RANGE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace retrograd {

// low, low + step, .., high.
struct SizeRange {
  std::string name;
  int64_t low = 0, high = 0;  // both included; step divides high - low
  int64_t step = 1;
  std::string Print() const;  // "s0 = 64 to 4096 in steps of 8"
};

// Without a step: the largest of 1, 2, 4 and 8 that divides both ends. With one, the last size of
// the range becomes `high`. InvalidArgument for anything else, and for a low end below 0 or above
// the high one.
absl::StatusOr<SizeRange> ParseSizeRange(absl::string_view text);

// At most `most` (at least 2) sizes of the range, ascending, both ends among them, each about as
// many times the one before it.
std::vector<int64_t> SamplesOf(const SizeRange& range, int most);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_SUPPORT_SIZE_RANGE_H_
