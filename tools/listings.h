// The commands that print something: `retrograd kernels`, `models` and `dump`.
#ifndef RETROGRAD_TOOLS_LISTINGS_H_
#define RETROGRAD_TOOLS_LISTINGS_H_

#include <string>
#include <vector>

#include "tools/pipeline.h"

namespace retrograd {

// The translation unit of a plan in one dialect: cuda, hip or host.
int KernelsCommand(const PlanArguments& arguments, absl::string_view dialect, bool prelude);

// The registry.
int ModelsCommand();

// What each stage makes of a graph: any of graph, lower, plan, schedule, memory.
int DumpCommand(const PlanArguments& arguments, const std::vector<std::string>& stages,
                int streams);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_LISTINGS_H_
