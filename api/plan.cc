// The C interface's plans, which no device is needed for.
#include <string>
#include <utility>

#include "api/guard.h"
#include "api/handles.h"
#include "api/plan.h"
#include "api/settings.h"
#include "graph/base/status.h"
#include "tools/explain/plan_html.h"

namespace retrograd {

absl::StatusOr<std::string> Explain(const PlannedGraph& planned, rg_format format) {
  if (format < RG_TEXT || format > RG_HTML) {
    return absl::InvalidArgumentError(
        absl::StrCat("format is ", format, ": RG_TEXT, RG_JSON or RG_HTML is needed"));
  }
  RG_ASSIGN_OR_RETURN(const PeakMemory memory, PeakMemoryOf(planned));
  const std::string& name = planned.original.name();
  if (format == RG_TEXT) return ExplainAsText(planned, memory, name);
  if (format == RG_JSON) return ExplainAsJson(planned, memory, name);
  RG_ASSIGN_OR_RETURN(const StreamSchedule schedule, ScheduleOf(planned, /*streams=*/0));
  return ExplainAsHtml(planned, schedule, memory, name);
}

absl::StatusOr<OpenedGraph> OpenFor(const BackwardGraph& graph, const char* spec,
                                    int64_t max_memory_bytes, const Settings& settings,
                                    const Device* device) {
  if (max_memory_bytes < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_memory_bytes is ", max_memory_bytes, ": 0 or more is needed"));
  }
  PlanArguments arguments;
  arguments.spec = spec == nullptr ? "" : spec;
  settings.Apply(arguments);
  RG_ASSIGN_OR_RETURN(OpenedGraph opened, OpenOptions(arguments, device));
  opened.options.max_memory_bytes = max_memory_bytes;
  opened.original = graph;
  opened.sizes = HintedSizes(graph);
  return opened;
}

}  // namespace retrograd

using retrograd::Guarded;
using retrograd::NotNull;

rg_code rg_plan_create(const rg_graph* graph, const rg_plan_options* options, rg_plan** plan) {
  return Guarded([&]() -> absl::Status {
    RG_RETURN_IF_ERROR(NotNull(graph, "graph"));
    RG_RETURN_IF_ERROR(NotNull(plan, "plan"));
    RG_ASSIGN_OR_RETURN(const rg_plan_options taken, retrograd::Taken(options, "rg_plan_options"));
    RG_ASSIGN_OR_RETURN(const retrograd::Settings settings,
                        retrograd::ParseSettings(taken.settings));
    RG_ASSIGN_OR_RETURN(retrograd::OpenedGraph opened,
                        retrograd::OpenFor(graph->graph, taken.spec, taken.max_memory_bytes,
                                           settings, /*device=*/nullptr));
    opened.options.cancelled = retrograd::CancelledBy(taken.cancellation);
    auto made = std::make_unique<rg_plan>(rg_plan{{std::move(opened)}});
    retrograd::PlannedGraph& planned = made->planned;
    RG_ASSIGN_OR_RETURN(planned.planned,
                        retrograd::PlanFusion(planned.original, planned.spec, planned.options));
    *plan = made.release();
    return absl::OkStatus();
  });
}

rg_code rg_plan_explain(const rg_plan* plan, rg_format format, char** text) {
  return Guarded([&]() -> absl::Status {
    RG_RETURN_IF_ERROR(NotNull(plan, "plan"));
    RG_RETURN_IF_ERROR(NotNull(text, "text"));
    RG_ASSIGN_OR_RETURN(const std::string told, retrograd::Explain(plan->planned, format));
    RG_ASSIGN_OR_RETURN(*text, retrograd::CallersCopy(told));
    return absl::OkStatus();
  });
}

rg_code rg_plan_cost(const rg_plan* plan, double* predicted_ns, int64_t* num_kernels) {
  return Guarded([&]() -> absl::Status {
    RG_RETURN_IF_ERROR(NotNull(plan, "plan"));
    const retrograd::PlanSummary& summary = plan->planned.planned.plan.summary;
    if (predicted_ns != nullptr) *predicted_ns = static_cast<double>(summary.price_ps) / 1e3;
    if (num_kernels != nullptr) *num_kernels = summary.kernels;
    return absl::OkStatus();
  });
}

void rg_plan_destroy(rg_plan* plan) { delete plan; }
