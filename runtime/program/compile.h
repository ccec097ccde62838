// Compile: the steps from a plan to what a device can load, each a pure function of those before.
// It stands in runtime/ because this is the first place that sees every stage.
#ifndef RETROGRAD_RUNTIME_PROGRAM_COMPILE_H_
#define RETROGRAD_RUNTIME_PROGRAM_COMPILE_H_

#include <vector>

#include "absl/status/statusor.h"
#include "codegen/print/kernel.h"
#include "runtime/memory/memory_plan.h"
#include "runtime/program/stage_seconds.h"
#include "runtime/schedule/stream_schedule.h"

namespace retrograd {

// Which launches start before the one in front of them has finished: see early_launches.h.
struct EarlyLaunchLimits {
  int64_t gain_ps = 0;  // of each; 0: there are none
  int64_t longest_ps = 0;
  int64_t most_bytes = 0;
};

struct CompileOptions {
  Dialect dialect = Dialect::kHost;
  // Whether the device multiplies with epilogues (Device::multiplies_with_epilogues). If not, a
  // plan that has any is refused: FailedPrecondition.
  bool epilogue_kernels = false;
  ScheduleOptions schedule;
  MemoryOptions memory;
  EarlyLaunchLimits early;
  // Of the device's memory, that calls may hold from run to run, all of them together.
  int64_t most_kept_bytes = 0;
  bool image_boxes = true;  // CallFacts::image_boxes of all calls
};

struct CompiledPlan {
  BackwardGraph graph;
  FusionPlan plan;
  std::vector<GroupKernels> kernels;  // by group; empty for library calls. KeepTextsOnce
  StreamSchedule schedule;
  MemoryPlan memory;
  EarlyLaunchLimits early;
  int64_t most_kept_bytes = 0;
  bool image_boxes = true;
};

// The graph is the one that the plan was made for (the planner's lowered graph). `seconds`, if
// there is one, is added what the steps took.
absl::StatusOr<CompiledPlan> Compile(BackwardGraph graph, FusionPlan plan,
                                     const CompileOptions& options,
                                     StageSeconds* seconds = nullptr);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_PROGRAM_COMPILE_H_
