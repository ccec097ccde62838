// What no kernel can be built from. A refusal names its limit, and tests/golden/refusal/ shows one
// of each.
#ifndef RETROGRAD_FUSION_KERNEL_BUILD_BUILD_LIMIT_H_
#define RETROGRAD_FUSION_KERNEL_BUILD_BUILD_LIMIT_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace retrograd {

enum class BuildLimit : uint8_t {
  kSplitAxes,       // views cut the axes of the iteration space into too many
  kIterationSpace,  // some result is not visited once an element
  kReductionAxes,   // what a reduction folds, or where it is read, is not where the others walk
  kScanAxis,        // the same of a scan
  kOneScan,
  kOneScatter,
  kGatherSource,  // rows are looked up in what is not stored
  kGuards,        // of one access
  kPlaces,        // at which one value is made
};
inline constexpr absl::string_view kBuildLimitNames[] = {
    "split_axes",  "iteration_space", "reduction_axes", "scan_axis", "one_scan",
    "one_scatter", "gather_source",   "guards",         "places"};

inline absl::string_view Name(BuildLimit limit) {
  return kBuildLimitNames[static_cast<int>(limit)];
}

struct BuildRefusal {
  BuildLimit limit;
  std::string reason;  // one sentence with numbers
};

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_BUILD_BUILD_LIMIT_H_
