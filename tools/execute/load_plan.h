// From a plan to a program on a device, with what the compiler says of the kernels sent back into
// planning: a plan whose kernels spill is made again.
#ifndef RETROGRAD_TOOLS_EXECUTE_LOAD_PLAN_H_
#define RETROGRAD_TOOLS_EXECUTE_LOAD_PLAN_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/program/compile.h"
#include "runtime/program/program.h"
#include "tools/support/pipeline.h"

namespace retrograd {

struct LoadedPlan {
  CompiledPlan compiled;
  std::unique_ptr<Program> program;
  int plans = 1;         // how many were made until no kernel spilled that could be avoided
  int64_t spilling = 0;  // kernels of the last one that spill all the same
};

// At most kMostPlans in all. `graph` becomes the plan that was loaded. Kernels for another
// architecture than the spec's say nothing, and neither does a device without a compiler's report.
inline constexpr int kMostPlans = 4;
absl::StatusOr<LoadedPlan> LoadPlan(PlannedGraph* graph, const std::string& name,
                                    const CompileOptions& compile, const ProgramOptions& options,
                                    Device* device, Progress* progress);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_EXECUTE_LOAD_PLAN_H_
