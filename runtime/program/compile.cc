#include "runtime/program/compile.h"

#include "codegen/emit.h"
#include "fusion/ops/matmul/gemm_tile_legality.h"
#include "fusion/plan/split_epilogues.h"
#include "graph/base/status.h"

namespace retrograd {

absl::StatusOr<CompiledPlan> Compile(const BackwardGraph& graph, const FusionPlan& plan,
                                     const CompileOptions& options) {
  // Products go through memory where the device does not make epilogues, or not this one.
  const auto stays = [&](const Call& fused) {
    return options.epilogue_kernels && WhyNoTiles(graph, MatMulOf(fused)).empty() &&
           WhyNotByTiles(fused.epilogue->kernel.ir, fused.results[0].value).empty();
  };
  CompiledPlan compiled{.graph = graph, .plan = SplitEpilogues(plan, stays)};

  // Kernels first: they depend on the plan alone.
  for (const Group& group : compiled.plan.groups) {
    compiled.kernels.push_back(EmitGroup(group, options.dialect));
  }

  // Then order, because who may run beside whom decides who may share bytes.
  RG_ASSIGN_OR_RETURN(compiled.schedule, ScheduleStreams(graph, compiled.plan, options.schedule));

  // Then bytes.
  RG_ASSIGN_OR_RETURN(compiled.memory,
                      PlanMemory(graph, compiled.plan, compiled.schedule, options.memory));

  // A mistake in either would be wrong gradients and no message, and checking takes milliseconds.
  RG_RETURN_IF_ERROR(compiled.schedule.Verify(graph, compiled.plan));
  RG_RETURN_IF_ERROR(compiled.memory.Verify(graph, compiled.plan, compiled.schedule));
  return compiled;
}

}  // namespace retrograd
