// What plans and executables of the C interface share.
#ifndef RETROGRAD_API_PLAN_H_
#define RETROGRAD_API_PLAN_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "api/settings.h"
#include "include/retrograd/retrograd.h"
#include "tools/explain/explanation.h"

namespace retrograd {

// What fusion-explain prints of the plan.
absl::StatusOr<std::string> Explain(const PlannedGraph& planned, rg_format format);

// The graph with the options that it is planned by. spec: null: that of the device, or where there
// is none, the reference's.
absl::StatusOr<OpenedGraph> OpenFor(const BackwardGraph& graph, const char* spec,
                                    int64_t max_memory_bytes, const Settings& settings,
                                    const Device* device);

}  // namespace retrograd

#endif  // RETROGRAD_API_PLAN_H_
