#include "runtime/executable/executable.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "fusion/device/interference.h"
#include "fusion/plan/call_key.h"
#include "graph/base/status.h"
#include "graph/text/text.h"
#include "runtime/executable/compiled_kernels.h"

namespace retrograd {
namespace {

int64_t Spilling(absl::Span<const KernelResources> kernels) {
  return std::count_if(kernels.begin(), kernels.end(),
                       [](const KernelResources& k) { return k.spill_bytes > 0; });
}

// Registers of another target say nothing.
absl::Status CheckReport(const DeviceReport& report, const DeviceSpec& spec) {
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
  return compile;
}

// A device plans without what it does not do.
PlanOptions PlanOptionsFor(const Device& device, const PlanOptions& options) {
  PlanOptions plan = options;
  if (!device.multiplies_with_epilogues()) plan.disable.insert("matmul_epilogues");
  return plan;
}

// What the device and its compiler made of a program, as far as it can change a plan: kernels, if
// any of them spills, and the times of library calls.
DeviceReport ReportOf(const CompiledPlan& compiled, const Program& program,
                      const std::string& arch) {
  DeviceReport report =
      ReportOf(compiled, program.resources(), absl::StrCat("the compiler for ", arch), arch);
  if (Spilling(program.resources()) == 0) report.kernels.clear();
  for (const Program::CallTime& time : program.call_times()) {
    report.calls.emplace(CallKey(*time.call), std::max(std::llround(time.us * 1e6), 1LL));
  }
  return report;
}

// Whether `more` says anything that is not known.
bool IsNews(const DeviceReport& more, const DeviceReport& known) {
  const auto is_news = [](const auto& entries, const auto& before) {
    return std::any_of(entries.begin(), entries.end(), [&](const auto& entry) {
      const auto at = before.find(entry.first);
      return at == before.end() || !(at->second == entry.second);
    });
  };
  return is_news(more.kernels, known.kernels) || is_news(more.calls, known.calls);
}

bool SameOrder(const StreamSchedule& a, const StreamSchedule& b) {
  return a.streams == b.streams && std::equal(a.steps.begin(), a.steps.end(), b.steps.begin(),
                                              b.steps.end(), [](const Step& x, const Step& y) {
                                                return x.group == y.group && x.stream == y.stream &&
                                                       x.waits == y.waits;
                                              });
}

// Whether both are the same work, whatever their plans say that it costs.
bool SameWork(const CompiledPlan& a, const CompiledPlan& b) {
  if (a.plan.groups.size() != b.plan.groups.size() || !SameOrder(a.schedule, b.schedule) ||
      !(a.memory == b.memory)) {
    return false;
  }
  for (size_t g = 0; g < a.plan.groups.size(); ++g) {
    const Call *call = CallOf(a.plan.groups[g]), *other = CallOf(b.plan.groups[g]);
    if ((call == nullptr) != (other == nullptr) || (call != nullptr && !(*call == *other)) ||
        a.kernels[g].launches != b.kernels[g].launches) {
      return false;
    }
  }
  return true;
}

// Reports of earlier executables of a graph are kept beside compiled code, so that the first plan
// of the next process is the last one of this.
class RememberedReport {
 public:
  RememberedReport(const Device& device, const ChosenSpec& spec, const BackwardGraph& graph)
      : cache_(device.Cache()) {
    if (cache_ == nullptr) return;
    const DeviceFacts facts = device.Describe();
    key_ = absl::StrCat("retrograd device report 1\n", facts.model, " ", facts.arch, "\n",
                        spec.text, "\n", Print(graph));
  }
  DeviceReport Read() const {
    if (cache_ == nullptr) return {};
    const std::optional<std::string> entry = cache_->Read(key_);
    if (!entry) return {};
    return ParseDeviceReport(*entry, "remembered").value_or(DeviceReport{});
  }
  void Write(const DeviceReport& report) const {
    if (cache_ != nullptr) cache_->Write(key_, report.Print()).IgnoreError();
  }

 private:
  const ModuleCache* const cache_;
  std::string key_;
};

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
  PlanOptions plan = PlanOptionsFor(device, options.plan);
  const RememberedReport remembered(device, made.spec_, graph);
  if (reports) {
    DeviceReport known = remembered.Read();
    known.Update(plan.feedback);
    plan.feedback = std::move(known);
  }
  begin(ExecutableStage::kPlan);
  RG_ASSIGN_OR_RETURN(made.planned_, PlanFusion(graph, spec, plan));
  while (true) {
    begin(ExecutableStage::kCompile);
    RG_ASSIGN_OR_RETURN(CompiledPlan compiled,
                        Compile(made.planned_.graph, made.planned_.plan, compile));
    const bool same = made.program_ != nullptr && SameWork(compiled, made.compiled_);
    made.compiled_ = std::move(compiled);
    made.feedback_ = plan.feedback;
    if (same) return made;
    RG_ASSIGN_OR_RETURN(made.program_, Program::Load(made.compiled_, &device, options.program));
    if (!reports) return made;
    made.spilling_ = Spilling(made.program_->resources());
    const DeviceReport report = ReportOf(made.compiled_, *made.program_, arch);
    if (!IsNews(report, plan.feedback) || made.plans_ == kMostPlans) return made;
    plan.feedback.Update(report);
    remembered.Write(plan.feedback);
    begin(ExecutableStage::kPlan);
    RG_ASSIGN_OR_RETURN(Planned again, PlanFusion(graph, spec, plan));
    if (again.plan == made.planned_.plan) return made;  // there is nothing better
    made.planned_ = std::move(again);
    ++made.plans_;
  }
}

}  // namespace retrograd
