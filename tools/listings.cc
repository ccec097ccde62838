#include "tools/listings.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/status.h"
#include "graph/text.h"
#include "models/models.h"
#include "runtime/compile.h"

namespace retrograd {
namespace {

constexpr absl::string_view kStages[] = {"graph", "lower", "plan", "schedule", "memory"};

absl::Status PrintKernels(const PlanArguments& arguments, absl::string_view dialect_name,
                          bool prelude) {
  std::optional<Dialect> dialect;
  for (Dialect d : {Dialect::kCuda, Dialect::kHip, Dialect::kHost}) {
    if (Name(d) == dialect_name) dialect = d;
  }
  if (!dialect) {
    return absl::InvalidArgumentError(
        absl::StrCat("--dialect ", dialect_name, ": there are cuda, hip and host"));
  }
  Progress progress;
  RG_ASSIGN_OR_RETURN(const PlannedGraph graph, OpenAndPlan(arguments, &progress));
  progress.Step("printing kernels");
  RG_ASSIGN_OR_RETURN(const CompiledPlan compiled,
                      Compile(graph.planned.graph, graph.planned.plan, {.dialect = *dialect}));
  absl::string_view text = compiled.source;
  if (!prelude) text.remove_prefix(Prelude(*dialect).size());
  std::fwrite(text.data(), 1, text.size(), stdout);
  return absl::OkStatus();
}

absl::Status PrintStages(const PlanArguments& arguments, const std::vector<std::string>& stages,
                         int streams) {
  for (const std::string& stage : stages) {
    if (std::find(std::begin(kStages), std::end(kStages), stage) != std::end(kStages)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("no stage ", stage, "; there are ", absl::StrJoin(kStages, ", ")));
  }
  const auto wanted = [&](absl::string_view stage) {
    return stages.empty() || std::find(stages.begin(), stages.end(), stage) != stages.end();
  };
  const auto print = [](const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
  };
  Progress progress;
  RG_ASSIGN_OR_RETURN(const PlannedGraph graph, OpenAndPlan(arguments, &progress));
  const BackwardGraph& lowered = graph.planned.graph;
  const FusionPlan& plan = graph.planned.plan;
  if (wanted("graph")) print(Print(graph.original));
  if (wanted("lower")) print(Print(lowered));
  if (wanted("plan")) print(plan.Print(lowered));
  RG_ASSIGN_OR_RETURN(
      const StreamSchedule schedule,
      ScheduleStreams(lowered, plan, {.streams = streams, .chip_blocks = graph.spec.sms}));
  if (wanted("schedule")) print(schedule.Print());
  if (!wanted("memory")) return absl::OkStatus();
  RG_ASSIGN_OR_RETURN(const MemoryPlan memory, PlanMemory(lowered, plan, schedule, {}));
  print(memory.Print());
  return absl::OkStatus();
}

int Exit(const absl::Status& status) { return status.ok() ? 0 : Report("retrograd", status); }

}  // namespace

int KernelsCommand(const PlanArguments& arguments, absl::string_view dialect, bool prelude) {
  return Exit(PrintKernels(arguments, dialect, prelude));
}

int ModelsCommand() {
  for (const Model& model : AllModels()) {
    std::printf("%-20s %-9s %s%s\n", model.name.c_str(), std::string(Name(model.kind)).c_str(),
                model.description.c_str(),
                model.bundle_path.empty() ? "" : " (with recorded gradients)");
    if (model.parameters.empty()) continue;
    std::vector<std::string> defaults;
    for (const ParameterSpec& p : model.parameters) {
      defaults.push_back(absl::StrCat(p.name, "=", p.PrintValue(p.default_value)));
    }
    std::printf("%-20s           as %s:%s\n", "", model.name.c_str(),
                absl::StrJoin(defaults, ",").c_str());
  }
  return 0;
}

int DumpCommand(const PlanArguments& arguments, const std::vector<std::string>& stages,
                int streams) {
  return Exit(PrintStages(arguments, stages, streams));
}

}  // namespace retrograd
