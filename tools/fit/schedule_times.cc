// Prints how well kernels are priced: the schedules that a plan's kernels could have, each timed
// alone on a device, beside what was predicted.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include <CLI/CLI.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "codegen/emit.h"
#include "codegen/translation_unit.h"
#include "fusion/cost/kernel_cost.h"
#include "fusion/cost/limits.h"
#include "graph/base/status.h"
#include "runtime/devices/cuda_device.h"
#include "tools/fit/model_error.h"
#include "tools/fit/schedule_regret.h"
#include "tools/fit/timed_kernels.h"
#include "tools/support/parse_arguments.h"
#include "tools/support/pipeline.h"
#include "tools/support/text_file.h"

namespace retrograd {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kNote[] = R"(Examples:
  schedule-times norm_stack
  schedule-times golf_plain_b48 --most 12 --json times.json
  schedule-times golf_plain_b48 --times times.json --spec mine.textproto

Of each distinct kernel the schedules that are predicted to be fastest are timed, all launches of one
together, with operands that are not in the caches unless they fit there.)";

struct Options {
  std::vector<std::string> graphs;
  std::string spec = "h200", json, only, measured;
  int device = 0, repeat = 20, most = 24;
  bool cold = false;
};

// Buffers of one kernel's operands, filled with numbers between 1 and 2; integers are 0.
class Operands {
 public:
  explicit Operands(Device& device) : device_(device) {}
  ~Operands() {
    for (void* data : table_) device_.Free(data);
  }
  Operands(const Operands&) = delete;
  Operands& operator=(const Operands&) = delete;

  absl::Status Add(int64_t bytes, DType dtype) {
    RG_ASSIGN_OR_RETURN(void* data, device_.Allocate(std::max<int64_t>(bytes, 1)));
    table_.push_back(data);
    const std::string numbers = Numbers(dtype, std::min<int64_t>(bytes, int64_t{8} << 20));
    for (int64_t at = 0; at < bytes; at += static_cast<int64_t>(numbers.size())) {
      const int64_t part = std::min<int64_t>(bytes - at, static_cast<int64_t>(numbers.size()));
      RG_RETURN_IF_ERROR(device_.CopyIn(static_cast<char*>(data) + at, numbers.data(), part));
    }
    return absl::OkStatus();
  }
  absl::Span<void* const> table() const { return table_; }

 private:
  std::string Numbers(DType dtype, int64_t bytes) {
    std::string numbers(static_cast<size_t>(bytes), '\0');
    std::uniform_real_distribution<float> draw(1, 2);
    for (int64_t i = 0; i + 4 <= bytes; i += 4) {
      const float number = draw(random_);
      uint32_t bits = 0;
      std::memcpy(&bits, &number, 4);
      if (dtype == DType::kBf16) bits = (bits & 0xffff0000) | bits >> 16;
      if (dtype == DType::kFp16) bits = 0x3c003c00 | (bits & 0x03ff03ff);
      if (dtype == DType::kFp64) bits = 0x3ff00000;
      const bool floating = dtype == DType::kBf16 || dtype == DType::kFp16 ||
                            dtype == DType::kFp32 || dtype == DType::kFp64;
      if (floating) std::memcpy(&numbers[static_cast<size_t>(i)], &bits, 4);
    }
    return numbers;
  }

  Device& device_;
  std::vector<void*> table_;  // by buffer of the kernel, the workspace last
  std::mt19937 random_{1};
};

struct Candidate {
  KernelBody body;
  Price price;
  std::vector<Kernel> kernels;
};

std::vector<Candidate> CandidatesOf(const KernelBody& planned, const DeviceSpec& spec,
                                    const Limits& limits, size_t most) {
  const Classification shape = Classify(planned.ir);
  const KernelProfile profile = ProfileKernel(planned.ir, shape);
  const KernelPricer pricer(planned.ir, profile, spec);
  std::vector<Candidate> candidates;
  for (const Schedule& s : CandidateSchedules(planned.ir, shape, ScheduleLimitsOf(spec))) {
    Candidate c{.body = planned, .price = pricer.Of(s)};
    if (!limits.CheckSchedule(s, c.price.footprint).ok()) continue;
    c.body.schedule = s;
    candidates.push_back(std::move(c));
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const auto& a, const auto& b) { return a.price.ps < b.price.ps; });
  if (candidates.size() > most) candidates.resize(most);
  return candidates;
}

retrograd::Launch LaunchOf(const Kernel& kernel, const KernelIr& ir) {
  retrograd::Launch launch{kernel.name, kernel.blocks, kernel.threads, {}, kernel.staged_bytes};
  for (const KernelArg& arg : kernel.args) {
    uint32_t slot = static_cast<uint32_t>(ir.buffers.size());  // the workspace
    for (size_t b = 0; b < ir.buffers.size() && arg.kind == KernelArg::kValue; ++b) {
      if (ir.buffers[b].value == arg.value) slot = static_cast<uint32_t>(b);
    }
    launch.args.push_back({.slot = slot});
  }
  return launch;
}

double Median(TimeSamples samples) {
  std::sort(samples.begin(), samples.end());
  return samples.empty() ? 0 : samples[samples.size() / 2];
}

absl::StatusOr<Json> TimeKernel(std::vector<Candidate> candidates, const Options& options,
                                Device& device) {
  for (Candidate& c : candidates) c.kernels = EmitGroup(c.body, Dialect::kCuda).launches;
  const KernelIr& ir = candidates[0].body.ir;
  Operands operands(device);
  int64_t workspace = 0;
  std::vector<GroupKernels> kernels;
  std::vector<retrograd::Launch> launches;
  for (const Candidate& c : candidates) {
    workspace = std::max(workspace, WorkspaceBytes(ir, c.body.schedule));
    kernels.push_back({c.kernels});
    for (const Kernel& kernel : c.kernels) launches.push_back(LaunchOf(kernel, ir));
  }
  for (const Buffer& b : ir.buffers) {
    RG_RETURN_IF_ERROR(operands.Add(b.elements * SizeBytes(b.dtype), b.dtype));
  }
  RG_RETURN_IF_ERROR(operands.Add(workspace, DType::kFp32));
  RG_ASSIGN_OR_RETURN(const std::unique_ptr<LoadedKernels> loaded,
                      device.Load(DistinctKernels(kernels), launches));
  RG_RETURN_IF_ERROR(device.Bind(0, *loaded, operands.table()));
  Json rows = Json::array();
  size_t first = 0;
  for (const Candidate& c : candidates) {
    const auto work = [&]() -> absl::Status {
      for (size_t i = 0; i < c.kernels.size(); ++i) {
        RG_RETURN_IF_ERROR(device.Launch(0, *loaded, first + i));
      }
      return absl::OkStatus();
    };
    RG_ASSIGN_OR_RETURN(const TimeSamples samples, device.Time(work, options.repeat, options.cold));
    first += c.kernels.size();
    const double predicted = 1e-6 * static_cast<double>(c.price.ps);
    const std::string schedule = c.body.schedule.Print();
    std::printf("  %9.1f us, predicted %9.1f  %s, %d registers\n", Median(samples), predicted,
                schedule.c_str(), c.price.footprint.registers);
    rows.push_back({{"schedule", schedule},
                    {"measured_us", Median(samples)},
                    {"predicted_us", predicted},
                    {"registers", c.price.footprint.registers},
                    {"blocks_per_sm", c.price.footprint.blocks_per_sm},
                    {"bytes_in_flight", c.price.footprint.bytes_in_flight}});
  }
  return rows;
}

std::string OpsOf(const Group& group, const PlannedGraph& graph) {
  std::string ops;
  for (NodeId id : group.nodes) {
    absl::StrAppend(&ops, ops.empty() ? "" : " ", Name(graph.planned.graph.op(id)));
  }
  return ops;
}

// Kernels of a plan that are timed: of equal ones the first, and no scatters, whose times depend on
// their indices.
struct NamedKernel {
  KernelLabel label;
  const KernelBody* body;
};
std::vector<NamedKernel> DistinctKernels(const PlannedGraph& graph) {
  std::vector<NamedKernel> kernels;
  std::set<std::string> seen;
  for (const Group& group : graph.planned.plan.groups) {
    for (const KernelBody* body : KernelsOf(group)) {
      if (body->ir.scatter ||
          !seen.insert(EmitGroup(*body, Dialect::kCuda).launches[0].name).second) {
        continue;
      }
      kernels.push_back({{OpsOf(group, graph), body->schedule.Print()}, body});
    }
  }
  return kernels;
}

absl::Status TimeGraph(const std::string& name, const Options& options, Device& device, Json& out) {
  Progress progress;
  PlanArguments arguments{.graph = name, .spec = options.spec};
  RG_ASSIGN_OR_RETURN(const PlannedGraph graph, OpenAndPlan(arguments, &progress));
  RG_ASSIGN_OR_RETURN(const Limits limits, Limits::Make(graph.spec, {}));
  for (const auto& [label, body] : DistinctKernels(graph)) {
    if (!absl::StrContains(absl::StrCat(label.ops, " ", label.planned), options.only)) continue;
    const std::vector<Candidate> candidates =
        CandidatesOf(*body, graph.spec, limits, static_cast<size_t>(options.most));
    if (candidates.empty()) continue;
    std::printf("%s: %s, planned %s\n", name.c_str(), label.ops.c_str(), label.planned.c_str());
    absl::StatusOr<Json> rows = TimeKernel(candidates, options, device);
    RG_RETURN_IF_ERROR(rows.status());
    out.push_back({{"graph", name},
                   {"ops", label.ops},
                   {"planned", label.planned},
                   {"schedules", *std::move(rows)}});
  }
  return absl::OkStatus();
}

// The candidates that were timed.
TimedSchedules TimesOf(const TimedKernel& kernel, const std::vector<Candidate>& candidates) {
  TimedSchedules timed;
  for (const Candidate& c : candidates) {
    const auto found = kernel.us.find(c.body.schedule.Print());
    if (found == kernel.us.end()) continue;
    timed.measured_us.push_back(found->second);
    timed.predicted_us.push_back(1e-6 * static_cast<double>(c.price.ps));
  }
  return timed;
}

// Timed kernels that were found in the plans.
struct Ranked {
  std::map<std::string, std::vector<TimedSchedules>> templates;
  std::vector<TimedSchedules> all;
  int64_t short_ones = 0;  // left out: launches and noise decide how long they take
};

// How prices by the spec rank the schedules of a graph's kernels. They are those that the h200 spec
// plans, whatever the spec.
absl::Status RankGraph(const std::string& name, const DeviceSpec& spec,
                       absl::Span<const TimedKernel> timed, Ranked& ranked) {
  RG_ASSIGN_OR_RETURN(const Limits limits, Limits::Make(spec, {}));
  Progress progress;
  RG_ASSIGN_OR_RETURN(const PlannedGraph graph,
                      OpenAndPlan({.graph = name, .spec = "h200"}, &progress));
  const std::vector<NamedKernel> kernels = DistinctKernels(graph);
  std::vector<KernelLabel> labels;
  for (const NamedKernel& kernel : kernels) labels.push_back(kernel.label);
  const std::vector<const TimedKernel*> matches = MatchTimed(name, labels, timed);
  for (size_t i = 0; i < kernels.size(); ++i) {
    if (matches[i] == nullptr) continue;
    const KernelBody& body = *kernels[i].body;
    TimedSchedules times = TimesOf(*matches[i], CandidatesOf(body, spec, limits, SIZE_MAX));
    if (times.measured_us.size() < 2) continue;
    if (*std::min_element(times.measured_us.begin(), times.measured_us.end()) <= kLeastCountedUs) {
      ++ranked.short_ones;
      continue;
    }
    ranked.templates[std::string(Name(body.schedule.kind))].push_back(times);
    ranked.all.push_back(std::move(times));
  }
  return absl::OkStatus();
}

void PrintRanking(const std::string& what, const std::vector<TimedSchedules>& kernels) {
  const RankingError e = RankingErrorOf(kernels);
  std::printf("%s\n", absl::StrCat(what, ": ", PrintRankingError(e)).c_str());
}

// How prices by the spec rank the schedules that an earlier run timed, by template.
absl::Status Compare(const Options& options) {
  RG_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(options.measured));
  RG_ASSIGN_OR_RETURN(const std::vector<TimedKernel> timed,
                      ParseTimedKernels(text, options.measured));
  RG_ASSIGN_OR_RETURN(const std::string spec_text, ReadDeviceSpec(options.spec));
  RG_ASSIGN_OR_RETURN(const DeviceSpec spec, ParseDeviceSpec(spec_text, options.spec));
  Ranked ranked;
  std::set<std::string> asked, graphs;
  for (const std::string& name : options.graphs) {
    if (!asked.insert(GraphLabel(name)).second) continue;
    RG_RETURN_IF_ERROR(RankGraph(name, spec, timed, ranked));
  }
  int64_t of_these = 0;
  for (const TimedKernel& kernel : timed) {
    graphs.insert(kernel.graph);
    of_these += static_cast<int64_t>(asked.count(kernel.graph));
  }
  if (ranked.all.empty()) {
    return absl::NotFoundError(absl::StrCat(
        options.measured, " holds no two times of a kernel of ", absl::StrJoin(asked, ", "),
        " that takes over ", kLeastCountedUs, " us: it has kernels of ",
        absl::StrJoin(graphs, ", "), "; give one of these, or time the plan's kernels again"));
  }
  for (const auto& [name, kernels] : ranked.templates) PrintRanking(name, kernels);
  PrintRanking("all", ranked.all);
  const auto found = static_cast<int64_t>(ranked.all.size()) + ranked.short_ones;
  std::printf(
      "of %d timed kernels of these graphs %d take no more than %g us, %d have no counterpart "
      "in the plans\n",
      static_cast<int>(of_these), static_cast<int>(ranked.short_ones), kLeastCountedUs,
      static_cast<int>(of_these - found));
  return absl::OkStatus();
}

absl::Status Run(const Options& options, const std::string& command) {
  if (!options.measured.empty()) return Compare(options);
  RG_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device,
                      MakeCudaDevice({.ordinal = options.device}));
  Json out = {{"command", command}, {"kernels", Json::array()}};
  for (const std::string& graph : options.graphs) {
    RG_RETURN_IF_ERROR(TimeGraph(graph, options, *device, out["kernels"]));
  }
  return options.json.empty() ? absl::OkStatus() : WriteTextFile(options.json, out.dump(1) + "\n");
}

}  // namespace
}  // namespace retrograd

int main(int argc, char** argv) {
  CLI::App app("Predicted times of kernels against measured ones, schedule by schedule.",
               "schedule-times");
  app.footer(retrograd::kNote);
  retrograd::Options options;
  app.add_option("graph", options.graphs, "Graphs: files or names of models")->required();
  app.add_option("--spec", options.spec, "Device to plan and predict for")->capture_default_str();
  app.add_option("--device", options.device, "Number of the CUDA device")->capture_default_str();
  app.add_option("--repeat", options.repeat, "Timed runs; figures are medians")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--most", options.most, "Schedules of a kernel")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--only", options.only, "Kernels whose ops or planned schedule hold this text");
  app.add_flag("--cold", options.cold, "Drive the caches empty before each timed run");
  app.add_option("--times", options.measured,
                 "Rank the schedules of this file, which --json wrote, by the spec's prices; no "
                 "device is needed");
  app.add_option("--json", options.json, "Write the times to this file");
  if (const std::optional<int> done = retrograd::ParseArguments(app, argc, argv)) return *done;
  std::string command = "schedule-times";
  for (int i = 1; i < argc; ++i) absl::StrAppend(&command, " ", argv[i]);
  const absl::Status status = retrograd::Run(options, command);
  return status.ok() ? 0 : retrograd::Report("schedule-times", status);
}
