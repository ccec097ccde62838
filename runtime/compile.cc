#include "runtime/compile.h"

#include "graph/status.h"

namespace retrograd {

absl::StatusOr<CompiledPlan> Compile(const BackwardGraph& graph, const FusionPlan& plan,
                                     const CompileOptions& options) {
  CompiledPlan compiled{.graph = graph, .plan = plan};

  // Source first: it depends on the plan alone.
  for (const Group& group : plan.groups) {
    compiled.kernels.push_back(EmitGroup(group, options.dialect));
  }
  compiled.source = EmitTranslationUnit(compiled.kernels, options.dialect);

  // Then order, because who may run beside whom decides who may share bytes.
  RG_ASSIGN_OR_RETURN(compiled.schedule, ScheduleStreams(graph, plan, options.schedule));

  // Then bytes.
  RG_ASSIGN_OR_RETURN(compiled.memory, PlanMemory(graph, plan, compiled.schedule, options.memory));

  // A mistake in either would be wrong gradients and no message, and checking takes milliseconds.
  RG_RETURN_IF_ERROR(compiled.schedule.Verify(graph, plan));
  RG_RETURN_IF_ERROR(compiled.memory.Verify(graph, plan, compiled.schedule));
  return compiled;
}

}  // namespace retrograd
