#include "runtime/program/compile.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "codegen/emit_once.h"
#include "codegen/translation_unit.h"
#include "fusion/ops/grouped_matmul/epilogue_product.h"
#include "fusion/ops/matmul/gemm_tile_legality.h"
#include "graph/base/status.h"
#include "runtime/program/early_launches.h"

namespace retrograd {
namespace {

// What the device cannot make is not planned for it, and is not planned anew here.
absl::Status CheckEpilogues(const BackwardGraph& graph, const FusionPlan& plan,
                            const CompileOptions& options) {
  for (const Group& group : plan.groups) {
    const Call* fused = FusedCallOf(group);
    if (fused == nullptr) continue;
    const std::optional<EpilogueProduct> product = EpilogueProductOf(*fused);
    std::string why = !options.epilogue_kernels ? "the device does not take kernels that multiply"
                      : !product                ? "it is no product that one may follow"
                                                : WhyNoTiles(graph, *product);
    if (why.empty()) why = WhyNotByTiles(fused->epilogue->kernel.ir, fused->results[0].value);
    if (why.empty()) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "%", Index(fused->node), " is planned with an epilogue that no kernel makes: ", why,
        "; plan without matmul_epilogues"));
  }
  return absl::OkStatus();
}

absl::Status CheckClusters(const FusionPlan& plan, const CompileOptions& options) {
  if (options.dialect != Dialect::kHip) return absl::OkStatus();
  for (const Group& group : plan.groups) {
    for (const KernelBody* body : KernelsOf(group)) {
      if (body->schedule.cluster == 1) continue;
      return absl::FailedPreconditionError(
          absl::StrCat("%", Index(group.nodes[0]), " is planned with ", body->schedule.Print(),
                       ", but the device has no clusters; plan with the spec of the device"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CompiledPlan> Compile(BackwardGraph given_graph, FusionPlan given_plan,
                                     const CompileOptions& options, StageSeconds* seconds) {
  StageSeconds stages;
  RG_RETURN_IF_ERROR(CheckEpilogues(given_graph, given_plan, options));
  RG_RETURN_IF_ERROR(CheckClusters(given_plan, options));
  CompiledPlan compiled{.graph = std::move(given_graph),
                        .plan = std::move(given_plan),
                        .early = options.early,
                        .most_kept_bytes = options.most_kept_bytes,
                        .image_boxes = options.image_boxes};
  const BackwardGraph& graph = compiled.graph;

  // Kernels first: they depend on the plan alone.
  EmitOnce emitter(options.dialect);
  for (const Group& group : compiled.plan.groups) {
    compiled.kernels.push_back(emitter.Emit(group, [&](size_t launches) -> size_t {
      if (options.early.gain_ps <= 0) return launches;
      return MayStartEarly(group, static_cast<int64_t>(launches), options.early) ? 0 : 1;
    }));
  }
  KeepTextsOnce(absl::MakeSpan(compiled.kernels));

  stages.Lap("load_emit");

  // Then order, because who may run beside whom decides who may share bytes.
  RG_ASSIGN_OR_RETURN(compiled.schedule, ScheduleStreams(graph, compiled.plan, options.schedule));

  stages.Lap("load_streams");

  // Then bytes.
  RG_ASSIGN_OR_RETURN(compiled.memory,
                      PlanMemory(graph, compiled.plan, compiled.schedule, options.memory));

  stages.Lap("load_memory");

  // A mistake in either would be wrong gradients and no message, and checking takes milliseconds.
  RG_RETURN_IF_ERROR(compiled.schedule.Verify(graph, compiled.plan));
  RG_RETURN_IF_ERROR(compiled.memory.Verify(graph, compiled.plan, compiled.schedule));
  stages.Lap("load_verify");
  if (seconds != nullptr) seconds->Add(stages);
  return compiled;
}

}  // namespace retrograd
