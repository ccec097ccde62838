// Library ops as calls: operands and results as strided tensors, and the ops behind a call that it
// can do itself.
#ifndef RETROGRAD_FUSION_OPS_LIBRARY_CALLS_H_
#define RETROGRAD_FUSION_OPS_LIBRARY_CALLS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "fusion/analysis/consumers.h"
#include "fusion/cost/device_report.h"
#include "fusion/device/device_spec.h"
#include "fusion/plan/plan.h"

namespace retrograd {

struct AbsorbOptions {
  bool casts = true;        // a cast to fp32 of a graph output becomes the matmul's output type
  bool accumulates = true;  // an accumulate step behind a matmul becomes beta = 1
};

// One group per library op, priced, ascending by their first op. A call that the report has
// measured costs what it takes. Every graph that Legalize has been through can be expressed.
absl::StatusOr<std::vector<Group>> MakeLibraryGroups(
    const BackwardGraph& graph, absl::Span<const Layout> layouts, const Consumers& consumers,
    const DeviceSpec& device, const DeviceReport& report, const AbsorbOptions& options);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_OPS_LIBRARY_CALLS_H_
