#include "tools/support/pipeline.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "fusion/device/device_numbers.h"
#include "graph/base/near_names.h"
#include "graph/base/status.h"
#include "graph/passes/expand.h"
#include "graph/passes/rebatch.h"
#include "graph/passes/retype.h"
#include "graph/proto/bind_graph.h"
#include "models/models.h"
#include "runtime/executable/choose_spec.h"
#include "tools/support/byte_size.h"
#include "tools/support/text_file.h"

namespace retrograd {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kPatience = std::chrono::seconds(2);

// An error for a name that is not in the list, with those near it.
absl::Status CheckNames(absl::string_view option, const std::vector<std::string>& given,
                        const std::vector<absl::string_view>& known) {
  for (const std::string& name : given) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::vector<absl::string_view> near = NearNames(name, known);
    return absl::InvalidArgumentError(
        near.empty() ? absl::StrCat(option, " ", name, ": no such name; there are ",
                                    absl::StrJoin(known, ", "))
                     : absl::StrCat(option, " ", name, ": no such name; did you mean ",
                                    absl::StrJoin(near, ", "), "?"));
  }
  return absl::OkStatus();
}

absl::Status OpenSpec(const PlanArguments& arguments, const Device* device, OpenedGraph& result) {
  std::vector<DeviceNumber> numbers;
  for (const std::string& text : arguments.set) {
    RG_ASSIGN_OR_RETURN(numbers.emplace_back(), ParseDeviceNumber(text));
  }
  const std::string name = arguments.spec.empty() ? std::string(kReferenceSpec) : arguments.spec;
  RG_ASSIGN_OR_RETURN(ChosenSpec chosen, arguments.spec.empty() && device != nullptr
                                             ? SpecOf(*device, numbers)
                                             : NamedSpec(name, numbers));
  result.spec = std::move(chosen.spec);
  result.spec_text = std::move(chosen.text);
  result.spec_note = std::move(chosen.note);
  return absl::OkStatus();
}

// As a fraction of powers of two up to 1,024, which is what a batch is scaled by.
absl::StatusOr<std::pair<int64_t, int64_t>> Fraction(double scale) {
  for (int64_t denominator = 1; denominator <= 1024; denominator *= 2) {
    const double numerator = scale * static_cast<double>(denominator);
    if (numerator == std::floor(numerator) && numerator >= 1 && numerator <= 1 << 20) {
      return std::pair(static_cast<int64_t>(numerator), denominator);
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--scale-rows ", scale, ": give a whole number or a half, quarter, ... of one, as in 0.5"));
}

// The graph as --bind wants it.
absl::Status OpenSizes(const PlanArguments& arguments, OpenedGraph& opened) {
  if (arguments.bind.empty()) {
    opened.sizes = HintedSizes(opened.original);
    if (!opened.sizes.empty()) {
      std::fprintf(stderr, "note: %s stands at %s\n", arguments.graph.c_str(),
                   opened.sizes.c_str());
    }
    return absl::OkStatus();
  }
  RG_ASSIGN_OR_RETURN(opened.original, BindSizes(opened.original, arguments.bind));
  opened.sizes = absl::StrCat("sizes ", absl::StrReplaceAll(arguments.bind, {{",", ", "}}));
  return absl::OkStatus();
}

// The report must be of the spec's target: registers of another say nothing.
absl::StatusOr<DeviceReport> ReadFeedback(const std::string& path, const DeviceSpec& spec) {
  if (path.empty()) return DeviceReport{};
  RG_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  RG_ASSIGN_OR_RETURN(DeviceReport report, ParseDeviceReport(text, path));
  if (report.arch != spec.arch) {
    return absl::InvalidArgumentError(absl::StrCat("--feedback ", path, ": compiled for '",
                                                   report.arch, "', but ", spec.name, " is ",
                                                   spec.arch));
  }
  return report;
}

}  // namespace

struct Progress::State {
  std::mutex mutex;
  std::condition_variable wake;
  std::string step, printed;
  Clock::time_point begin = Clock::now(), step_begin = Clock::now();
  bool done = false;
  std::thread watcher;

  void PrintStep() {
    if (step.empty() || step == printed) return;
    std::fprintf(stderr, "%s ...\n", step.c_str());
    printed = step;
  }
  void Watch() {
    std::unique_lock<std::mutex> lock(mutex);
    wake.wait_until(lock, begin + kPatience, [this] { return done; });
    while (!done) {
      PrintStep();
      wake.wait(lock);
    }
  }
};

Progress::Progress() : state_(new State) {
  state_->watcher = std::thread([state = state_] { state->Watch(); });
}

Progress::~Progress() {
  {
    std::lock_guard<std::mutex> lock(state_->mutex);
    state_->done = true;
  }
  state_->wake.notify_all();
  state_->watcher.join();
  delete state_;
}

void Progress::Step(std::string what) {
  {
    std::lock_guard<std::mutex> lock(state_->mutex);
    state_->step = std::move(what);
    state_->step_begin = Clock::now();
  }
  if (Clock::now() - state_->begin >= kPatience) state_->wake.notify_all();
}

double Progress::Seconds() const {
  return std::chrono::duration<double>(Clock::now() - state_->step_begin).count();
}

absl::StatusOr<OpenedGraph> OpenOptions(const PlanArguments& arguments, const Device* device) {
  std::vector<absl::string_view> features, limits;
  for (const Feature& feature : kFeatures) features.push_back(feature.name);
  for (const Limit& limit : kLimits) limits.push_back(limit.name);
  RG_RETURN_IF_ERROR(CheckNames("--disable", arguments.disable, features));
  RG_RETURN_IF_ERROR(CheckNames("--tighten", arguments.tighten, limits));

  OpenedGraph result;
  RG_RETURN_IF_ERROR(OpenSpec(arguments, device, result));
  PlanOptions& options = result.options;
  options.disable.insert(arguments.disable.begin(), arguments.disable.end());
  options.tighten.insert(arguments.tighten.begin(), arguments.tighten.end());
  RG_ASSIGN_OR_RETURN(options.feedback, ReadFeedback(arguments.feedback, result.spec));
  options.search.random_seed = arguments.random_plan;
  options.random_schedules = arguments.random_plan;
  if (!arguments.max_memory.empty()) {
    RG_ASSIGN_OR_RETURN(options.max_memory_bytes, ParseByteSize(arguments.max_memory));
  }
  return result;
}

absl::StatusOr<BackwardGraph> BindSizes(const BackwardGraph& graph, const std::string& sizes) {
  const absl::StatusOr<std::vector<SizeBinding>> bindings = ParseBindings(sizes);
  absl::StatusOr<BackwardGraph> bound =
      bindings.ok() ? BindGraph(graph, *bindings) : bindings.status();
  if (bound.ok()) return bound;
  return absl::Status(bound.status().code(),
                      absl::StrCat("--bind ", sizes, ": ", bound.status().message()));
}

std::string HintedSizes(const BackwardGraph& graph) {
  const std::string hints = HintsOf(graph);
  return hints.empty() ? "" : absl::StrCat("the hints of sizes ", hints, "; --bind takes others");
}

absl::Status ChangeGraph(const PlanArguments& arguments, BackwardGraph& graph) {
  if (arguments.scale_rows != 1) {
    RG_ASSIGN_OR_RETURN(const auto fraction, Fraction(arguments.scale_rows));
    RG_ASSIGN_OR_RETURN(const BackwardGraph primitives, ExpandComposites(graph));
    RG_ASSIGN_OR_RETURN(graph, RescaleRows(primitives, fraction.first, fraction.second));
  }
  if (arguments.dtype.empty()) return absl::OkStatus();
  // "fp32" is what models' parameters call f32.
  const std::string name = absl::StrReplaceAll(arguments.dtype, {{"fp", "f"}});
  const std::optional<DType> dtype = DTypeByName(name);
  if (!dtype.has_value() || !IsFloat(*dtype)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--dtype ", arguments.dtype, ": there are bf16, fp16, fp32 and fp64"));
  }
  absl::StatusOr<BackwardGraph> retyped = RetypeFloats(graph, *dtype);
  if (!retyped.ok()) {
    return absl::FailedPreconditionError(absl::StrCat("the graph has no form in ", arguments.dtype,
                                                      ": ", retyped.status().message()));
  }
  graph = *std::move(retyped);
  return absl::OkStatus();
}

absl::StatusOr<OpenedGraph> OpenUnbound(const PlanArguments& arguments, Progress* progress,
                                        const Device* device) {
  RG_ASSIGN_OR_RETURN(OpenedGraph result, OpenOptions(arguments, device));
  progress->Step(absl::StrCat("reading ", arguments.graph));
  RG_ASSIGN_OR_RETURN(result.original, OpenGraph(arguments.graph));
  return result;
}

absl::StatusOr<OpenedGraph> Open(const PlanArguments& arguments, Progress* progress,
                                 const Device* device) {
  RG_ASSIGN_OR_RETURN(OpenedGraph result, OpenUnbound(arguments, progress, device));
  RG_RETURN_IF_ERROR(OpenSizes(arguments, result));
  RG_RETURN_IF_ERROR(ChangeGraph(arguments, result.original));
  return result;
}

absl::StatusOr<PlannedGraph> Plan(OpenedGraph opened, const std::string& name, Progress* progress) {
  progress->Step(absl::StrCat("planning ", name, " for ", opened.spec.name));
  PlannedGraph result{std::move(opened)};
  RG_ASSIGN_OR_RETURN(result.planned, PlanFusion(result.original, result.spec, result.options));
  return result;
}

absl::StatusOr<PlannedGraph> OpenAndPlan(const PlanArguments& arguments, Progress* progress) {
  RG_ASSIGN_OR_RETURN(OpenedGraph opened, Open(arguments, progress));
  return Plan(std::move(opened), arguments.graph, progress);
}

int Report(absl::string_view tool, const absl::Status& status) {
  const std::string line =
      absl::StrReplaceAll(status.message(), {{"\n", " | "}, {"\r", " "}, {"\t", " "}});
  std::fprintf(stderr, "%s: %s\n", std::string(tool).c_str(), line.c_str());
  return 1;
}

}  // namespace retrograd
