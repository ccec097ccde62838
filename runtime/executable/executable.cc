#include "runtime/executable/executable.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "codegen/translation_unit.h"
#include "graph/base/status.h"
#include "runtime/executable/executable_report.h"
#include "runtime/program/commands.h"
#include "runtime/program/early_launches.h"
#include "runtime/program/program_text.h"
#include "runtime/schedule/schedule_options.h"

namespace retrograd {
namespace {

// Registers of another target say nothing.
absl::Status CheckReport(const DeviceReport& report, const DeviceSpec& spec) {
  if (report.empty() || report.arch == spec.arch) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the compiler's report is of kernels for '",
                                                 report.arch, "', but ", spec.name, " is ",
                                                 spec.arch, ": give a report of that, or none"));
}

// A training step is not short of this part of the memory from which on it counts as scarce.
constexpr int64_t kScarceToKeptBytes = 4;

// How plans are compiled for the device: the one place that decides it.
absl::StatusOr<CompileOptions> CompileOptionsFor(const Device& device, const ChosenSpec& spec,
                                                 const ExecutableOptions& options) {
  CompileOptions compile{.dialect = device.dialect(),
                         .epilogue_kernels = device.multiplies_with_epilogues(),
                         .memory = {.reuse = options.memory_reuse,
                                    .in_place = options.in_place,
                                    .phases = PhaseOptionsOf(spec.spec, options.most_phases)}};
  // A ceiling on memory is kept in the order of one stream.
  const bool one = options.streams == 0 && options.plan.max_memory_bytes > 0;
  RG_ASSIGN_OR_RETURN(compile.schedule,
                      ScheduleOptionsFor(spec.spec, spec.text, one ? 1 : options.streams));
  compile.schedule.objective = options.objective;
  compile.image_boxes = !options.plan.disable.contains("image_boxes");
  if (options.early_launches) compile.early = EarlyLaunchLimitsOf(spec.spec);
  if (options.keep_sorted_indices) {
    compile.most_kept_bytes = spec.spec.scarce_memory_bytes / kScarceToKeptBytes;
  }
  return compile;
}

// A device plans without what it does not do.
PlanOptions PlanOptionsFor(const Device& device, const PlanOptions& options) {
  PlanOptions plan = options;
  if (!device.multiplies_with_epilogues()) plan.disable.insert("matmul_epilogues");
  if (!device.runs_clusters()) plan.disable.insert("held_columns");
  if (!device.loads_boxes()) plan.disable.insert("image_boxes");
  return plan;
}

// What the compiler made of the kernels, which are in the device's cache from then on.
absl::StatusOr<std::vector<KernelResources>> CompileAlone(const CompiledPlan& compiled,
                                                          Device& device) {
  RG_ASSIGN_OR_RETURN(const CommandList list, BuildCommands(compiled, /*order_seed=*/0));
  RG_ASSIGN_OR_RETURN(const auto loaded,
                      device.Load(DistinctKernels(compiled.kernels), list.launches));
  const absl::Span<const KernelResources> told = loaded->resources();
  return std::vector<KernelResources>(told.begin(), told.end());
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
  if (!device.runs_clusters()) made.spec_.spec.row_cluster_blocks = 1;
  const DeviceSpec& spec = made.spec();
  RG_RETURN_IF_ERROR(CheckReport(options.plan.feedback, spec));
  RG_ASSIGN_OR_RETURN(const CompileOptions compile, CompileOptionsFor(device, made.spec_, options));
  const auto begin = [&](ExecutableStage stage) -> absl::Status {
    if (options.progress) options.progress(stage, spec);
    return CheckCancelled(options.cancelled);
  };

  const std::string arch = device.Describe().arch;
  const bool reports = !arch.empty() && arch == spec.arch;
  PlanOptions plan = PlanOptionsFor(device, options.plan);
  plan.cancelled = options.cancelled;
  const bool learns = reports && options.plan_again;
  const bool remembers = learns && options.measured_calls;
  const RememberedReport remembered(remembers ? device.Cache() : nullptr, device.Describe(),
                                    made.spec_.text, graph);
  DeviceReport known = remembered.Read();
  known.Update(plan.feedback);
  plan.feedback = std::move(known);
  RG_RETURN_IF_ERROR(begin(ExecutableStage::kPlan));
  StageSeconds& seconds = made.seconds_;
  seconds.Start();
  if (options.patterns != nullptr) {
    RG_ASSIGN_OR_RETURN(plan.pattern,
                        options.patterns->For(options.sizes, spec, made.spec_.text, plan));
    PlanOptions second = plan;
    second.cancelled = {};  // this outlives the making, which alone is cancelled
    plan.second_pattern = [patterns = options.patterns, sizes = options.sizes, spec,
                           text = made.spec_.text, second = std::move(second)] {
      return patterns->Second(sizes, spec, text, second);
    };
    seconds.Lap("plan_pattern");
  }
  made.plan_options_ = plan;
  RG_ASSIGN_OR_RETURN(Planned planned, PlanFusion(graph, spec, plan));
  made.kept_regions_ = planned.kept_regions;
  std::string loaded;  // the text of the program that is, where a plan was made again
  while (true) {
    RG_RETURN_IF_ERROR(begin(ExecutableStage::kCompile));
    RG_ASSIGN_OR_RETURN(CompiledPlan compiled, Compile(std::move(planned.graph),
                                                       std::move(planned.plan), compile, &seconds));
    made.compiled_ = std::make_shared<const CompiledPlan>(std::move(compiled));
    seconds.Start();
    made.feedback_ = plan.feedback;
    if (made.plans_ > 1) {
      RG_ASSIGN_OR_RETURN(const std::string text, ProgramText(*made.compiled_));
      if (text == loaded) return made;  // the same work at other prices
    }
    std::vector<KernelResources> resources;
    if (options.runnable) {
      RG_ASSIGN_OR_RETURN(made.program_, Program::Load(made.compiled_, &device, options.program));
      made.load_calls_ns_ += made.program_->stats().load_calls_ns;
      for (const auto& [op, ns] : made.program_->stats().load_op_ns) made.load_op_ns_[op] += ns;
      made.load_kernels_ns_ += made.program_->stats().load_kernels_ns;
      const absl::Span<const KernelResources> told = made.program_->resources();
      resources.assign(told.begin(), told.end());
    } else {
      RG_ASSIGN_OR_RETURN(resources, CompileAlone(*made.compiled_, device));
    }
    seconds.Lap("load_program");
    if (!reports) return made;
    made.spilling_ = Spilling(resources);
    if (!learns || made.plans_ == kMostPlans) return made;
    const DeviceReport report = NewsOf(
        *made.compiled_, resources, options.measured_calls ? made.program_.get() : nullptr, arch);
    if (!IsNews(report, plan.feedback)) return made;
    plan.feedback.Update(report);
    remembered.Write(plan.feedback);
    RG_RETURN_IF_ERROR(begin(ExecutableStage::kPlan));
    RG_ASSIGN_OR_RETURN(Planned again, PlanFusion(graph, spec, plan));
    seconds.Lap("plan_again");
    if (again.plan == made.compiled_->plan) return made;  // there is nothing better
    RG_ASSIGN_OR_RETURN(loaded, ProgramText(*made.compiled_));
    planned = std::move(again);
    ++made.plans_;
  }
}

absl::StatusOr<Planned> Executable::Explained(const BackwardGraph& graph) const {
  PlanOptions options = plan_options_;
  options.feedback = feedback_;
  options.decisions = true;
  options.cancelled = {};
  return PlanFusion(graph, spec_.spec, options);
}

}  // namespace retrograd
