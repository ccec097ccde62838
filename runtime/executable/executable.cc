#include "runtime/executable/executable.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "fusion/device/interference.h"
#include "graph/base/status.h"
#include "runtime/executable/compiled_kernels.h"

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

// Registers of another target say nothing.
absl::Status CheckReport(const CompilerReport& report, const DeviceSpec& spec) {
  if (report.empty() || report.arch == spec.arch) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the compiler's report is of kernels for '",
                                                 report.arch, "', but ", spec.name, " is ",
                                                 spec.arch, ": give a report of that, or none"));
}

// How plans are compiled for the device: the one place that decides it.
absl::StatusOr<CompileOptions> CompileOptionsFor(const Device& device, const ChosenSpec& spec,
                                                 const ExecutableOptions& options) {
  CompileOptions compile{.dialect = device.dialect(),
                         .epilogue_kernels = device.multiplies_with_epilogues(),
                         .schedule = {.streams = options.streams, .chip_blocks = spec.spec.sms},
                         .memory = {.reuse = options.memory_reuse}};
  RG_ASSIGN_OR_RETURN(compile.schedule.interference, ParseInterference(spec.text, spec.spec.name));
  compile.schedule.worth_overlapping = 1e-6 * static_cast<double>(spec.spec.stream_worth_ppm);
  compile.schedule.most_overlapped_ps = spec.spec.stream_longest_ps;
  return compile;
}

}  // namespace

absl::StatusOr<Executable> Executable::Make(const BackwardGraph& graph, Device& device,
                                            const ExecutableOptions& options) {
  Executable made;
  if (options.spec.has_value()) {
    made.spec_ = *options.spec;
  } else {
    RG_ASSIGN_OR_RETURN(made.spec_, SpecOf(device));
  }
  const DeviceSpec& spec = made.spec();
  RG_RETURN_IF_ERROR(CheckReport(options.plan.feedback, spec));
  RG_ASSIGN_OR_RETURN(const CompileOptions compile, CompileOptionsFor(device, made.spec_, options));
  const auto begin = [&](ExecutableStage stage) {
    if (options.progress) options.progress(stage, spec);
  };

  const std::string arch = device.Describe().arch;
  const bool reports = !arch.empty() && arch == spec.arch;
  PlanOptions plan = options.plan;
  begin(ExecutableStage::kPlan);
  RG_ASSIGN_OR_RETURN(made.planned_, PlanFusion(graph, spec, plan));
  while (true) {
    begin(ExecutableStage::kCompile);
    RG_ASSIGN_OR_RETURN(made.compiled_, Compile(made.planned_.graph, made.planned_.plan, compile));
    RG_ASSIGN_OR_RETURN(made.program_, Program::Load(made.compiled_, &device, options.program));
    made.feedback_ = plan.feedback;
    if (!reports) return made;
    const absl::Span<const KernelResources> resources = made.program_->resources();
    made.spilling_ = Spilling(resources);
    if (made.spilling_ == 0 || made.plans_ == kMostPlans) return made;
    Add(ReportOf(made.compiled_, resources, absl::StrCat("the compiler for ", arch), arch),
        &plan.feedback);
    begin(ExecutableStage::kPlan);
    RG_ASSIGN_OR_RETURN(Planned again, PlanFusion(graph, spec, plan));
    if (again.plan == made.planned_.plan) return made;  // there is nothing better
    made.planned_ = std::move(again);
    ++made.plans_;
  }
}

}  // namespace retrograd
