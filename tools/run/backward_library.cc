#include "tools/run/backward_library.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "fusion/plan/peak_memory.h"
#include "graph/base/status.h"
#include "graph/reference/reference.h"
#include "runtime/compiler/module_cache.h"
#include "runtime/executable/executable.h"
#include "runtime/program/program_text.h"
#include "tools/execute/make_device.h"
#include "tools/execute/make_executable.h"
#include "tools/execute/random_inputs.h"
#include "tools/execute/step_times.h"
#include "tools/support/pipeline.h"

using retrograd::CompiledPlan;
using retrograd::Device;
using retrograd::Executable;
using retrograd::Program;
using Json = nlohmann::ordered_json;

struct rg_backward {
  std::shared_ptr<Device> device;  // outlives the program
  std::optional<Executable> executable;
  Json seconds = Json::object();  // of each step of opening
  bool runnable = true;
  std::string digest;  // of the program's text
  std::string text;    // that a caller was given
};

namespace {

thread_local std::string last_error;

// Seconds since the last lap, under the lap's name.
class Laps {
 public:
  explicit Laps(Json* seconds) : seconds_(*seconds) {}
  void Lap(const char* name) {
    const Clock::time_point now = Clock::now();
    seconds_[name] = std::chrono::duration<double>(now - begin_).count();
    begin_ = now;
  }

 private:
  using Clock = std::chrono::steady_clock;
  Json& seconds_;
  Clock::time_point begin_ = Clock::now();
};

absl::StatusOr<std::unique_ptr<Device>> MakeDevice(const Json& options) {
  retrograd::DeviceChoices choices;
  choices.cuda.cache_dir = choices.hip.cache_dir = options.value("cache_dir", "");
  choices.cuda.attention.cudnn.deterministic = options.value("deterministic", true);
  choices.cuda.convolution.cudnn.nondeterministic = !options.value("deterministic", true);
  choices.cuda.convolution.cudnn.most_plans = options.value("convolution_plans", 0);
  choices.cuda.attention.allow_tiled = options.value("tiled_attention", true);
  const bool time_calls = options.value("time_calls", true);
  choices.cuda.time_matmuls = time_calls;
  choices.cuda.attention.time_plans = choices.cuda.convolution.time_plans = time_calls;
  return retrograd::MakeDevice(options.value("device", "cuda"), choices);
}

retrograd::ExecutableOptions OptionsOf(const Json& options) {
  retrograd::ExecutableOptions made;
  made.streams = options.value("streams", 1);
  if (!options.value("memory_order", true)) made.objective = retrograd::ScheduleObjective::kLatency;
  made.memory_reuse = options.value("memory_reuse", true);
  made.in_place = options.value("in_place", true);
  made.plan_again = options.value("plan_again", true);
  made.measured_calls = options.value("measured_calls", false);
  made.program.record = options.value("record", true);
  made.runnable = options.value("runnable", true);
  return made;
}

// On `device`, or on one that is made for it where that is null.
absl::StatusOr<std::unique_ptr<rg_backward>> Open(std::shared_ptr<Device> device, const char* graph,
                                                  const Json& options) {
  auto made = std::make_unique<rg_backward>();
  Laps laps(&made->seconds);
  if (device == nullptr) {
    RG_ASSIGN_OR_RETURN(device, MakeDevice(options));
  }
  made->device = std::move(device);
  laps.Lap("device");
  retrograd::Progress progress;
  retrograd::PlanArguments arguments;
  arguments.graph = graph;
  arguments.spec = options.value("spec", "");
  for (auto [name, list] : {std::pair("disable", &arguments.disable), {"set", &arguments.set}}) {
    if (options.contains(name)) *list = options[name].get<std::vector<std::string>>();
  }
  RG_ASSIGN_OR_RETURN(const retrograd::OpenedGraph opened,
                      retrograd::Open(arguments, &progress, made->device.get()));
  laps.Lap("read");
  // The first plan is a lap of its own; those that are made for spills count as loading.
  const auto lap = [&](retrograd::ExecutableStage stage, const retrograd::DeviceSpec&) {
    if (stage == retrograd::ExecutableStage::kCompile && !made->seconds.contains("plan")) {
      laps.Lap("plan");
    }
  };
  retrograd::ExecutableOptions how = OptionsOf(options);
  how.progress = lap;
  made->runnable = how.runnable;
  RG_ASSIGN_OR_RETURN(made->executable, retrograd::MakeExecutable(opened, graph, std::move(how),
                                                                  *made->device, &progress));
  RG_ASSIGN_OR_RETURN(const std::string text, retrograd::ProgramText(made->executable->compiled()));
  made->digest = retrograd::Digest(text);
  laps.Lap("load");
  return made;
}

// The most bytes alive at once, in the sense of fusion/plan/peak_memory.h, with the scratch memory
// of library calls while one runs.
int64_t PeakWithScratch(const CompiledPlan& compiled, int64_t scratch_bytes) {
  const std::vector<int64_t> live = retrograd::LiveBytes(compiled.graph, compiled.plan);
  int64_t peak = 0;
  for (size_t i = 0; i < live.size(); ++i) {
    const retrograd::Group& group = compiled.plan.groups[i];
    const bool call =
        retrograd::CallOf(group) != nullptr && retrograd::FusedCallOf(group) == nullptr;
    peak = std::max(peak, live[i] + (call ? scratch_bytes : 0));
  }
  return peak;
}

// [name of the dtype, elements from the first to the last] of an input or output.
Json Room(const retrograd::TensorType& type, const std::vector<int64_t>& strides) {
  return {retrograd::Name(type.dtype),
          retrograd::SpanElements(type.shape,
                                  strides.empty() ? retrograd::DenseStrides(type.shape) : strides)};
}

// Each library call's op, and what makes it.
Json CallsJson(const std::vector<retrograd::CallInUse>& calls) {
  Json list = Json::array();
  for (const retrograd::CallInUse& used : calls) {
    list.push_back({{"op", retrograd::Name(used.call->op)},
                    {"by", used.implementation},
                    {"us", used.measured_us}});
  }
  return list;
}

// What is known only of what can run.
Json DescribeProgram(const CompiledPlan& compiled, const Program& program) {
  const retrograd::ProgramStats& stats = program.stats();
  return {{"scratch_bytes", program.scratch_bytes()},
          {"peak_bytes", PeakWithScratch(compiled, program.scratch_bytes())},
          {"calls", CallsJson(program.CallsInUse())},
          {"runs", stats.runs},
          {"recordings", stats.recordings},
          {"failed_recordings", stats.failed_recordings},
          {"recording_us", static_cast<double>(stats.recording_ns) / 1e3}};
}

Json Describe(const rg_backward& backward) {
  const retrograd::PlanSummary& summary = backward.executable->compiled().plan.summary;
  Json calls = {{"kernel", 0}, {"matmul", 0}, {"attention", 0}};
  for (const retrograd::Group& group : backward.executable->compiled().plan.groups) {
    if (retrograd::AliasOf(group) != nullptr) continue;
    const std::string kind(retrograd::KindOf(group));
    calls[kind] = calls.value(kind, 0) + 1;
  }
  const retrograd::BackwardGraph& graph = backward.executable->compiled().graph;
  Json inputs = Json::array(), outputs = Json::array();
  for (retrograd::NodeId id : retrograd::InputNodes(graph)) {
    inputs.push_back(Room(graph.type(id), graph.node(id).input->strides));
    inputs.back().push_back(retrograd::IntegerLimit(graph, id));
  }
  for (const retrograd::GraphOutput& output : graph.outputs()) {
    outputs.push_back(output.value ? Room(graph.type(*output.value), output.strides) : Json());
  }
  Json said = {{"spec", backward.executable->spec().name},
               {"spec_note", backward.executable->note()},
               {"ops", summary.ops},
               {"inputs", inputs},
               {"outputs", outputs},
               {"kernels", summary.kernels},
               {"plans", backward.executable->plans()},
               {"spilling_kernels", backward.executable->spilling()},
               {"groups", calls},
               {"predicted_us", static_cast<double>(summary.price_ps) / 1e6},
               {"digest", backward.digest},
               {"arena_bytes", backward.executable->compiled().memory.arena_bytes},
               {"seconds", backward.seconds}};
  if (backward.runnable)
    said.update(DescribeProgram(backward.executable->compiled(), backward.executable->program()));
  return said;
}

// Null where that fails, for the reason that last_error then holds.
rg_backward* OpenOrFail(std::shared_ptr<Device> device, const char* graph, const char* options) {
  try {
    absl::StatusOr<std::unique_ptr<rg_backward>> opened =
        Open(std::move(device), graph, Json::parse(options));
    if (opened.ok()) return opened->release();
    last_error = std::string(opened.status().message());
  } catch (const nlohmann::json::exception& error) {
    last_error = absl::StrCat("the options are not what they should be: ", error.what());
  }
  return nullptr;
}

}  // namespace

rg_backward* rg_backward_open(const char* graph, const char* options) {
  return OpenOrFail(nullptr, graph, options);
}

rg_backward* rg_backward_open_beside(rg_backward* other, const char* graph, const char* options) {
  return OpenOrFail(other->device, graph, options);
}

void rg_backward_close(rg_backward* backward) { delete backward; }

int rg_backward_run(rg_backward* backward, const void* const* inputs, size_t num_inputs,
                    void* const* outputs, size_t num_outputs, void* stream) {
  const absl::Status status = backward->executable->Run(
      {inputs, num_inputs}, {outputs, num_outputs}, std::optional<void*>(stream));
  if (status.ok()) return 0;
  last_error = std::string(status.message());
  return 1;
}

double rg_backward_last_run_us(rg_backward* backward) {
  return static_cast<double>(backward->executable->program().stats().last_run_ns) / 1e3;
}

const char* rg_backward_describe(rg_backward* backward) {
  backward->text = Describe(*backward).dump();
  return backward->text.c_str();
}

const char* rg_backward_time_steps(rg_backward* backward, const void* const* inputs,
                                   size_t num_inputs, void* const* outputs, size_t num_outputs,
                                   int repeat) {
  const auto times = backward->executable->program().TimeSteps(
      {inputs, num_inputs}, {outputs, num_outputs}, repeat, /*cold=*/false);
  if (!times.ok()) {
    last_error = std::string(times.status().message());
    return nullptr;
  }
  backward->text = retrograd::StepsJson(backward->executable->compiled(), *times).dump();
  return backward->text.c_str();
}

const char* rg_backward_error(void) { return last_error.c_str(); }
