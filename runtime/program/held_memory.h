// What a program holds of memory as long as it lives, so that who keeps many can bound it.
// Estimated from what the program is made of, since nothing tells how much of a process's memory is
// whose.
#ifndef RETROGRAD_RUNTIME_PROGRAM_HELD_MEMORY_H_
#define RETROGRAD_RUNTIME_PROGRAM_HELD_MEMORY_H_

#include <cstdint>

#include "runtime/program/commands.h"
#include "runtime/program/compile.h"

namespace retrograd {

// Without the workspace, and without what calls keep from run to run, which tell it themselves.
struct HeldMemory {
  int64_t host_bytes = 0, device_bytes = 0;
};

// Of the graph, the plan, the kernels' texts and the list of commands.
int64_t HeldByPlan(const CompiledPlan& compiled, const CommandList& list);

// Of the program's streams on a GPU, and of a recording of each phase, which the runs to come make.
HeldMemory HeldByRecordings(const CompiledPlan& compiled, const CommandList& list);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_PROGRAM_HELD_MEMORY_H_
