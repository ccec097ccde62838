// The commands that print something: `retrograd kernels`, `models` and `dump`.
#ifndef RETROGRAD_TOOLS_RUN_LISTINGS_H_
#define RETROGRAD_TOOLS_RUN_LISTINGS_H_

#include <string>
#include <vector>

#include "tools/support/pipeline.h"

namespace retrograd {

// The translation unit of a plan in one dialect: cuda, hip or host.
int KernelsCommand(const PlanArguments& arguments, absl::string_view dialect, bool prelude);

// Compiles that unit for `arch` (empty: the spec's) with NVRTC or HIPRTC and prints, kernel by
// kernel, the registers and spills that the compiler reports beside the predicted ones. `report`
// (empty: none) is written with them, for --feedback.
int CompileCommand(const PlanArguments& arguments, absl::string_view dialect,
                   const std::string& arch, const std::string& report);

// The registry.
int ModelsCommand();

// What each stage makes of a graph: any of graph, lower, plan, schedule, memory. `phases`: that a
// run may be cut into.
int DumpCommand(const PlanArguments& arguments, const std::vector<std::string>& stages, int streams,
                int phases);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_RUN_LISTINGS_H_
