#include "tools/fit/register_samples.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "codegen/emit.h"
#include "fusion/kernel/templates/kernel_template.h"
#include "fusion/planner/planner.h"
#include "graph/base/status.h"
#include "models/models.h"
#include "runtime/compiler/rtc.h"

namespace retrograd {
namespace {

// Kernels compiled at once: few enough that a compiler's memory stays small.
constexpr size_t kBatch = 24;

constexpr absl::string_view kSharedLaunch = "shared";  // in the place of a kind of launch

class Collector {
 public:
  Collector(const DeviceSpec& device, const RegisterSampleOptions& options)
      : device_(device),
        options_(options),
        dialect_(device.vendor == "nvidia" ? Dialect::kCuda : Dialect::kHip) {}

  absl::Status AddGraph(const std::string& name) {
    RG_ASSIGN_OR_RETURN(const BackwardGraph graph, OpenGraph(name));
    for (uint64_t seed : options_.seeds) {
      PlanOptions plan;
      plan.decisions = false;
      plan.search.random_seed = seed;
      plan.random_schedules = seed;
      RG_ASSIGN_OR_RETURN(const Planned planned, PlanFusion(graph, device_, plan));
      for (const Group& group : planned.plan.groups) {
        for (const KernelBody* body : KernelsOf(group)) {
          AddKernel(name, *body, /*best_plan=*/seed == 0);
          AddCandidates(name, *body);
        }
        if (SharedLaunchOf(group) != nullptr) {
          AddSharedLaunch(name, group, /*best_plan=*/seed == 0);
        }
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<RegisterSamples> Compile() {
    RegisterSamples result;
    result.arch = options_.arch.empty() ? device_.arch : options_.arch;
    for (auto it = kernels_.begin(); it != kernels_.end();) {
      std::vector<Kernel> batch;
      for (size_t n = 0; n < kBatch && it != kernels_.end(); ++n, ++it) {
        batch.push_back(it->second.kernel);
      }
      RG_ASSIGN_OR_RETURN(const CompiledObject object,
                          CompileKernels(dialect_, batch, result.arch));
      result.compiler = object.compiler;
      for (const KernelResources& resources : object.kernels) {
        const auto found = kernels_.find(resources.name);
        if (found == kernels_.end()) continue;
        RegisterSample sample = found->second.sample;
        sample.registers = resources.registers;
        sample.spill_bytes = resources.spill_bytes;
        sample.shared_bytes = resources.shared_bytes;
        result.samples.push_back(std::move(sample));
      }
    }
    return result;
  }

 private:
  struct Entry {
    RegisterSample sample;
    Kernel kernel;
  };

  void AddKernel(const std::string& graph, const KernelBody& body, bool best_plan) {
    const Schedule& s = body.schedule;
    const KernelProfile profile = ProfileKernel(body.ir, Classify(body.ir));
    const std::vector<Kernel> launches = EmitGroup(body, dialect_).launches;
    for (size_t n = 0; n < launches.size(); ++n) {
      const Kernel& kernel = launches[n];
      RegisterSample sample{.name = kernel.name, .graph = graph, .schedule = s.Print()};
      sample.launch = TemplateOf(s).launch_kind(s, static_cast<int64_t>(n),
                                                static_cast<int64_t>(launches.size()));
      sample.threads = kernel.threads;
      sample.counts = CountForRegisters(profile, s, sample.launch);
      sample.cap = RegisterCap(kernel.threads, device_);
      sample.expected = ExpectedRegisters(sample.launch, sample.counts, s, device_);
      sample.predicted = std::min(sample.expected, sample.cap);
      if (sample.launch == MainLaunch(s)) {
        const Footprint footprint = PredictFootprint(body.ir, profile, s, device_);
        sample.predicted = footprint.registers;
        sample.spill_predicted = footprint.spill_bytes > 0;
      }
      const auto at = kernels_.try_emplace(kernel.name, Entry{std::move(sample), kernel}).first;
      at->second.sample.best_plan |= best_plan;
    }
  }

  void AddSharedLaunch(const std::string& graph, const Group& group, bool best_plan) {
    const Kernel kernel = EmitGroup(group, dialect_).launches[0];
    const std::vector<const KernelBody*> bodies = KernelsOf(group);
    RegisterSample sample{.name = kernel.name, .graph = graph};
    sample.schedule =
        absl::StrCat(bodies.size(), " kernels, the first ", bodies[0]->schedule.Print());
    sample.launch = MainLaunch(bodies[0]->schedule);
    sample.shared = true;
    sample.best_plan = best_plan;
    sample.threads = kernel.threads;
    sample.cap = RegisterCap(kernel.threads, device_);
    for (const KernelBody* body : bodies) {
      sample.predicted = std::max<int64_t>(sample.predicted, body->registers);
      sample.spill_predicted |= body->spill_bytes > 0;
    }
    sample.expected = sample.predicted;
    kernels_.try_emplace(kernel.name, Entry{std::move(sample), kernel});
  }

  void AddCandidates(const std::string& graph, const KernelBody& body) {
    if (options_.every_candidate <= 0) return;
    KernelBody other = body;
    for (const Schedule& s :
         CandidateSchedules(body.ir, Classify(body.ir), ScheduleLimitsOf(device_))) {
      if (candidates_++ % options_.every_candidate != 0) continue;
      other.schedule = s;
      AddKernel(graph, other, /*best_plan=*/false);
    }
  }

  const DeviceSpec& device_;
  const RegisterSampleOptions& options_;
  const Dialect dialect_;
  int64_t candidates_ = 0;
  std::map<std::string, Entry> kernels_;  // by name: equal kernels have one
};

RegisterErrors SummaryOf(std::string launch, std::vector<const RegisterSample*> samples) {
  RegisterErrors e{.launch = std::move(launch)};
  std::stable_sort(samples.begin(), samples.end(),
                   [](const auto* a, const auto* b) { return a->error() < b->error(); });
  e.kernels = static_cast<int64_t>(samples.size());
  e.median = samples[samples.size() / 2]->error();
  e.percentile_90 = samples[samples.size() * 9 / 10]->error();
  e.worst = samples.back()->error();
  e.worst_kernel = samples.back()->name;
  for (const RegisterSample* s : samples) {
    e.spills += s->spill_bytes > 0;
    e.spills_predicted += s->spill_predicted;
    e.surprises += s->spill_bytes > 0 && !s->spill_predicted;
  }
  return e;
}

}  // namespace

double RegisterSample::error() const {
  return std::abs(static_cast<double>(predicted - registers)) /
         static_cast<double>(std::max<int64_t>(registers, 1));
}

absl::StatusOr<RegisterSamples> MeasureRegisters(const DeviceSpec& device,
                                                 const RegisterSampleOptions& options) {
  RG_RETURN_IF_ERROR(device.vendor == "nvidia" ? CudaCompilerAvailable() : HipCompilerAvailable());
  std::vector<std::string> graphs = options.graphs;
  if (graphs.empty()) {
    for (const Model& model : AllModels()) {
      if (model.kind == ModelKind::kCaptured) graphs.push_back(model.name);
    }
  }
  Collector collector(device, options);
  for (const std::string& graph : graphs) RG_RETURN_IF_ERROR(collector.AddGraph(graph));
  return collector.Compile();
}

std::vector<RegisterErrors> Summarise(const std::vector<RegisterSample>& samples) {
  std::vector<RegisterErrors> errors;
  std::vector<const RegisterSample*> all;
  for (int kind = 0; kind < kNumLaunchKinds; ++kind) {
    std::vector<const RegisterSample*> of_kind;
    for (const RegisterSample& s : samples) {
      if (static_cast<int>(s.launch) == kind && !s.shared) of_kind.push_back(&s);
    }
    all.insert(all.end(), of_kind.begin(), of_kind.end());
    if (!of_kind.empty()) {
      errors.push_back(SummaryOf(std::string(kLaunchKindNames[kind]), std::move(of_kind)));
    }
  }
  std::vector<const RegisterSample*> shared;
  for (const RegisterSample& s : samples) {
    if (s.shared) shared.push_back(&s);
  }
  all.insert(all.end(), shared.begin(), shared.end());
  if (!shared.empty()) errors.push_back(SummaryOf(std::string(kSharedLaunch), std::move(shared)));
  if (!all.empty()) errors.push_back(SummaryOf("all", std::move(all)));
  return errors;
}

std::string PrintTable(const RegisterSamples& samples) {
  std::string out = absl::StrFormat("%s, %s: %d distinct kernels\n", samples.compiler, samples.arch,
                                    samples.samples.size());
  absl::StrAppend(&out,
                  "launch                    kernels  median     90%   worst   "
                  "spill  predicted  surprises  worst kernel\n");
  for (const RegisterErrors& e : Summarise(samples.samples)) {
    absl::StrAppend(
        &out, absl::StrFormat("%-25s %7d  %5.1f%%  %5.1f%%  %5.0f%%  %6d  %9d  %9d  %s\n", e.launch,
                              e.kernels, 100 * e.median, 100 * e.percentile_90, 100 * e.worst,
                              e.spills, e.spills_predicted, e.surprises, e.worst_kernel));
  }
  for (const RegisterSample& s : samples.samples) {
    if (s.spill_bytes == 0 || s.spill_predicted) continue;
    absl::StrAppend(&out, absl::StrFormat("surprise: %s spills %d B at %d registers of %d: %d "
                                          "expected (%s, %s)\n",
                                          s.name, s.spill_bytes, s.registers, s.cap, s.expected,
                                          s.graph, s.schedule));
  }
  return out;
}

std::string ToJson(const RegisterSamples& samples, const std::string& device,
                   const std::string& command, const std::string& commit) {
  nlohmann::ordered_json json;
  json["command"] = command;
  json["commit"] = commit;
  json["compiler"] = samples.compiler;
  json["arch"] = samples.arch;
  json["device"] = device;
  for (const RegisterErrors& e : Summarise(samples.samples)) {
    json["errors"].push_back({{"launch", e.launch},
                              {"kernels", e.kernels},
                              {"median", std::round(e.median * 1e4) / 1e4},
                              {"percentile_90", std::round(e.percentile_90 * 1e4) / 1e4},
                              {"worst", std::round(e.worst * 1e4) / 1e4},
                              {"spills", e.spills},
                              {"spills_predicted", e.spills_predicted},
                              {"surprises", e.surprises}});
  }
  std::vector<std::string> counts(std::begin(kRegisterCountNames), std::end(kRegisterCountNames));
  json["counts"] = counts;
  json["columns"] = {"name",      "graph",       "launch",       "cap",    "expected", "predicted",
                     "registers", "spill_bytes", "shared_bytes", "counts", "best_plan"};
  std::string out = json.dump(1);
  // One line a kernel.
  out.resize(out.size() - 2);
  absl::StrAppend(&out, ",\n \"kernels\": [\n");
  for (size_t n = 0; n < samples.samples.size(); ++n) {
    const RegisterSample& s = samples.samples[n];
    const nlohmann::ordered_json line = {
        s.name,
        s.graph,
        s.shared ? kSharedLaunch : kLaunchKindNames[static_cast<int>(s.launch)],
        s.cap,
        s.expected,
        s.predicted,
        s.registers,
        s.spill_bytes,
        s.shared_bytes,
        s.counts,
        s.best_plan ? 1 : 0};
    absl::StrAppend(&out, "  ", line.dump(), n + 1 < samples.samples.size() ? "," : "", "\n");
  }
  return absl::StrCat(out, " ]\n}\n");
}

}  // namespace retrograd
