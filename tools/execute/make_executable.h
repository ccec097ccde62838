// The executable of a graph that a command has opened.
#ifndef RETROGRAD_TOOLS_EXECUTE_MAKE_EXECUTABLE_H_
#define RETROGRAD_TOOLS_EXECUTE_MAKE_EXECUTABLE_H_

#include <string>

#include "absl/status/statusor.h"
#include "runtime/device/device.h"
#include "runtime/executable/executable.h"
#include "tools/support/pipeline.h"

namespace retrograd {

// By the spec and the plan options of `opened`, which stand in the place of those of `options`.
// `name` is the graph's, for `progress`.
absl::StatusOr<Executable> MakeExecutable(const OpenedGraph& opened, const std::string& name,
                                          ExecutableOptions options, Device& device,
                                          Progress* progress);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_EXECUTE_MAKE_EXECUTABLE_H_
