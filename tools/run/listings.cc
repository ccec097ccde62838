#include "tools/run/listings.h"

#include <algorithm>
#include <cstdio>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "codegen/translation_unit.h"
#include "graph/base/status.h"
#include "graph/text/text.h"
#include "models/models.h"
#include "runtime/compiler/arch.h"
#include "runtime/compiler/rtc.h"
#include "runtime/executable/compiled_kernels.h"
#include "runtime/program/compile.h"
#include "runtime/program/early_launches.h"
#include "runtime/program/program_text.h"
#include "runtime/schedule/schedule_options.h"
#include "tools/support/text_file.h"

namespace retrograd {
namespace {

constexpr absl::string_view kStages[] = {"graph", "lower", "plan", "schedule", "memory", "program"};

absl::StatusOr<Dialect> DialectByName(absl::string_view name) {
  for (Dialect d : {Dialect::kCuda, Dialect::kHip, Dialect::kHost}) {
    if (Name(d) == name) return d;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--dialect ", name, ": there are cuda, hip and host"));
}

// Kernels that multiply are written in CUDA alone.
bool TakesEpilogues(Dialect dialect) { return dialect == Dialect::kCuda; }

PlanArguments PlannedFor(Dialect dialect, PlanArguments arguments) {
  if (!TakesEpilogues(dialect)) arguments.disable.push_back("matmul_epilogues");
  return arguments;
}

absl::Status PrintKernels(const PlanArguments& arguments, absl::string_view dialect_name,
                          bool prelude) {
  RG_ASSIGN_OR_RETURN(const Dialect dialect, DialectByName(dialect_name));
  Progress progress;
  RG_ASSIGN_OR_RETURN(const PlannedGraph graph,
                      OpenAndPlan(PlannedFor(dialect, arguments), &progress));
  progress.Step("printing kernels");
  RG_ASSIGN_OR_RETURN(const CompiledPlan compiled,
                      Compile(graph.planned.graph, graph.planned.plan,
                              {.dialect = dialect, .epilogue_kernels = TakesEpilogues(dialect)}));
  const std::vector<Kernel> kernels = DistinctKernels(compiled.kernels);
  const std::string text = prelude ? TranslationUnit(kernels, dialect) : PrintKernels(kernels);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return absl::OkStatus();
}

// What the plan predicts of a kernel: of the group's main launch, by the kernel's name.
absl::flat_hash_map<std::string, const KernelBody*> Predictions(const CompiledPlan& compiled) {
  absl::flat_hash_map<std::string, const KernelBody*> predicted;
  for (size_t g = 0; g < compiled.kernels.size(); ++g) {
    const KernelBody* body = KernelOf(compiled.plan.groups[g]);
    if (body == nullptr || compiled.kernels[g].launches.empty()) continue;
    const std::vector<Kernel>& launches = compiled.kernels[g].launches;
    predicted.emplace(launches[MainLaunchOf(*body)].name, body);
  }
  return predicted;
}

absl::Status CompileKernels(const PlanArguments& arguments, absl::string_view dialect_name,
                            std::string arch, const std::string& report) {
  RG_ASSIGN_OR_RETURN(const Dialect dialect, DialectByName(dialect_name));
  if (dialect == Dialect::kHost) {
    return absl::InvalidArgumentError(
        "--compile is for cuda and hip; `retrograd run` compiles host");
  }
  Progress progress;
  RG_ASSIGN_OR_RETURN(const PlannedGraph graph,
                      OpenAndPlan(PlannedFor(dialect, arguments), &progress));
  if (arch.empty()) arch = graph.spec.arch;
  RG_ASSIGN_OR_RETURN(const CompiledPlan compiled,
                      Compile(graph.planned.graph, graph.planned.plan,
                              {.dialect = dialect, .epilogue_kernels = TakesEpilogues(dialect)}));
  const std::vector<Kernel> kernels = DistinctKernels(compiled.kernels);
  const std::string target = ArchFor(kernels, arch);
  progress.Step(absl::StrCat("compiling for ", target));
  RG_ASSIGN_OR_RETURN(const CompiledObject object,
                      CompileKernels(dialect, kernels, target, {.sms = graph.spec.sms}));
  const auto predicted = Predictions(compiled);
  std::printf("%s, %s: %zu kernels, %zu bytes of code\n", object.compiler.c_str(), target.c_str(),
              object.kernels.size(), object.code.size());
  std::printf("registers (predicted)  spilled  shared  kernel\n");
  for (const KernelResources& kernel : object.kernels) {
    const auto it = predicted.find(kernel.name);
    const bool known = it != predicted.end();
    std::printf("%9d %11s  %7d  %6d  %s%s\n", kernel.registers,
                known ? absl::StrCat("(", it->second->registers, ")").c_str() : "",
                static_cast<int>(kernel.spill_bytes), static_cast<int>(kernel.shared_bytes),
                kernel.name.c_str(),
                known ? absl::StrCat("  ", it->second->schedule.Print()).c_str() : "");
  }
  if (report.empty()) return absl::OkStatus();
  return WriteTextFile(report, ReportOf(compiled, object.kernels, object.compiler, arch).Print());
}

// What a GPU of the spec would be given to do, in order.
absl::StatusOr<std::string> ProgramOf(const PlannedGraph& graph, const ScheduleOptions& schedule,
                                      const MemoryOptions& memory) {
  const Dialect dialect = graph.spec.vendor == "amd" ? Dialect::kHip : Dialect::kCuda;
  RG_ASSIGN_OR_RETURN(const CompiledPlan compiled,
                      Compile(graph.planned.graph, graph.planned.plan,
                              {.dialect = dialect,
                               .epilogue_kernels = TakesEpilogues(dialect),
                               .schedule = schedule,
                               .memory = memory,
                               .early = EarlyLaunchLimitsOf(graph.spec)}));
  return ProgramText(compiled);
}

absl::Status PrintStages(const PlanArguments& arguments, const std::vector<std::string>& stages,
                         int streams, int phases) {
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
  RG_ASSIGN_OR_RETURN(const ScheduleOptions schedule_options,
                      ScheduleOptionsFor(graph.spec, graph.spec_text, streams));
  RG_ASSIGN_OR_RETURN(const StreamSchedule schedule,
                      ScheduleStreams(lowered, plan, schedule_options));
  if (wanted("schedule")) print(schedule.Print());
  const MemoryOptions how{.phases = PhaseOptionsOf(graph.spec, phases)};
  if (wanted("memory")) {
    RG_ASSIGN_OR_RETURN(const MemoryPlan memory, PlanMemory(lowered, plan, schedule, how));
    print(memory.Print());
  }
  if (wanted("program")) {
    RG_ASSIGN_OR_RETURN(const std::string program, ProgramOf(graph, schedule_options, how));
    print(program);
  }
  return absl::OkStatus();
}

int Exit(const absl::Status& status) { return status.ok() ? 0 : Report("retrograd", status); }

}  // namespace

int KernelsCommand(const PlanArguments& arguments, absl::string_view dialect, bool prelude) {
  return Exit(PrintKernels(arguments, dialect, prelude));
}

int CompileCommand(const PlanArguments& arguments, absl::string_view dialect,
                   const std::string& arch, const std::string& report) {
  return Exit(CompileKernels(arguments, dialect, arch, report));
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

int DumpCommand(const PlanArguments& arguments, const std::vector<std::string>& stages, int streams,
                int phases) {
  return Exit(PrintStages(arguments, stages, streams, phases));
}

}  // namespace retrograd
