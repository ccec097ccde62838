// Which kernels, schedules and classes of library calls a plan has from which size to which.
//
// The graph is planned at samples of the range. Between two neighbours whose plans differ, and only
// there, more sizes are planned until the border is known to a step: that no third plan lies
// between two equal ones is taken for granted.
#ifndef RETROGRAD_TOOLS_EXPLAIN_PLAN_RANGES_H_
#define RETROGRAD_TOOLS_EXPLAIN_PLAN_RANGES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/support/pipeline.h"
#include "tools/support/size_range.h"

namespace retrograd {

// Sizes from low to high, which were both planned, and prices there in picoseconds.
struct SizeInterval {
  int64_t low = 0, high = 0;
  int64_t low_ps = 0, high_ps = 0;
};

struct PlanRanges {
  // Equal kernels or calls (layers): the same ops, run alike in the same intervals at the same
  // prices.
  struct Kernel {
    struct Interval : SizeInterval {  // prices of one of them
      std::string variant;            // VariantOf
    };
    std::string what;  // "mul 3, sum 2  from aten.add"
    int64_t times = 1;
    bool is_call = false;
    std::vector<Interval> intervals;  // ascending; where the plan has no such kernel: none
  };
  // Sizes at which the same ops share kernels. Prices of the whole plan.
  struct Partition : SizeInterval {
    int64_t low_kernels = 0, high_kernels = 0;  // launches and calls
  };
  // Sizes that the graph was not made for.
  struct Refused {
    int64_t low = 0, high = 0;
    std::string why;
  };

  std::string graph, device;
  SizeRange range;
  std::string others;  // sizes that stay: "s1=64"; empty: none
  std::vector<int64_t> planned;
  std::vector<Partition> partitions;
  std::vector<Kernel> kernels;  // the dearest first, by its dearest price times its number
  std::vector<Refused> refused;
  int64_t unknown_borders = 0;  // that were not looked for: too many sizes were planned
};

// Other symbols keep the values of arguments.bind, or their hints. `most` sizes are planned: more
// than the samples.
inline constexpr int kSamplesOfRange = 16, kMostPlansOfRange = 400;
absl::StatusOr<PlanRanges> FindPlanRanges(const PlanArguments& arguments, const SizeRange& range,
                                          Progress* progress, int most = kMostPlansOfRange);

// At most 60 lines of at most 120 columns.
std::string RangesAsText(const PlanRanges& ranges);
// Everything, as JSON of version kRangesVersion; fields are only ever added.
inline constexpr int kRangesVersion = 1;
std::string RangesAsJson(const PlanRanges& ranges);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_EXPLAIN_PLAN_RANGES_H_
