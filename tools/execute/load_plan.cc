#include "tools/execute/load_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/base/status.h"
#include "tools/support/compiled_kernels.h"

namespace retrograd {
namespace {

int64_t Spilling(absl::Span<const KernelResources> kernels) {
  return std::count_if(kernels.begin(), kernels.end(),
                       [](const KernelResources& k) { return k.spill_bytes > 0; });
}

// What is known of kernels, with those of another plan.
void Add(const CompilerReport& more, CompilerReport* report) {
  report->compiler = more.compiler;
  report->arch = more.arch;
  for (const auto& [key, made] : more.kernels) report->kernels.insert_or_assign(key, made);
}

}  // namespace

absl::StatusOr<LoadedPlan> LoadPlan(PlannedGraph* graph, const std::string& name,
                                    const CompileOptions& compile, const ProgramOptions& options,
                                    Device* device, Progress* progress) {
  const DeviceFacts facts = device->Describe();
  LoadedPlan loaded;
  while (true) {
    progress->Step(absl::StrCat("compiling the kernels of ", name));
    RG_ASSIGN_OR_RETURN(loaded.compiled,
                        Compile(graph->planned.graph, graph->planned.plan, compile));
    RG_ASSIGN_OR_RETURN(loaded.program, Program::Load(loaded.compiled, device, options));
    if (facts.arch.empty() || facts.arch != graph->spec.arch) return loaded;
    const CompilerReport report =
        ReportOf(loaded.compiled, loaded.program->resources(),
                 absl::StrCat("the compiler for ", facts.arch), facts.arch);
    loaded.spilling = Spilling(loaded.program->resources());
    if (loaded.spilling == 0 || loaded.plans == kMostPlans) return loaded;
    OpenedGraph opened = *graph;
    Add(report, &opened.options.feedback);
    RG_ASSIGN_OR_RETURN(PlannedGraph again, Plan(std::move(opened), name, progress));
    if (again.planned.plan == graph->planned.plan) return loaded;  // there is nothing better
    *graph = std::move(again);
    ++loaded.plans;
  }
}

}  // namespace retrograd
