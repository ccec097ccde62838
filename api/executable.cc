// The C interface's executables: made, run, described.
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/describe.h"
#include "api/guard.h"
#include "api/handles.h"
#include "api/plan.h"
#include "api/settings.h"
#include "graph/base/status.h"
#include "graph/passes/accumulate_outputs.h"
#include "graph/reference/reference.h"
#include "runtime/executable/executable.h"
#include "tools/execute/step_times.h"

// Also holds what runs need, so that they allocate nothing.
struct rg_executable {
  std::unique_ptr<retrograd::Device> device;  // outlives the program
  retrograd::PlannedGraph planned;            // as it is explained, but for the plan
  std::optional<retrograd::Executable> executable;
  bool runnable = true;
  bool caller_workspace = false;
  rg_allocator allocator = {};
  void* workspace = nullptr;  // the allocator's
  int64_t workspace_bytes = 0;
  std::vector<const void*> inputs;    // the caller's, then those that outputs are added to
  std::vector<uint32_t> accumulated;  // by the latter: the output
  std::vector<rg_block> blocks;       // as rg_executable_phases tells them
  mutable std::mutex runs;            // which take turns, and what is told of them between
  retrograd::StageSeconds seconds;    // "device", "options", "plan", "load"

  ~rg_executable() {
    executable.reset();
    if (workspace == nullptr) return;
    allocator.release(allocator.user, workspace, static_cast<size_t>(workspace_bytes));
  }
};

namespace retrograd {
namespace {

constexpr int32_t kMostPhases = 64;

// Tells the caller what happens while an executable is made, and asks whether to go on.
class Watcher {
 public:
  explicit Watcher(const rg_executable_options& options)
      : options_(options), cancelled_(CancelledBy(options.cancellation)) {}

  Cancelled cancelled() const {
    return [stopped = stopped_, by_caller = cancelled_] {
      return *stopped || (by_caller && by_caller());
    };
  }

  void Begin(ExecutableStage stage, const DeviceSpec& spec) {
    const bool plans = stage == ExecutableStage::kPlan;
    const std::string what = plans ? absl::StrCat("planning for ", spec.name)
                                   : std::string("compiling and loading the kernels");
    if (options_.progress == nullptr) return;
    const rg_stage told = plans ? RG_STAGE_PLAN : RG_STAGE_COMPILE;
    if (options_.progress(options_.progress_user, told, what.c_str()) != 0) *stopped_ = true;
  }

  void Log(const std::string& line) const {
    if (options_.log != nullptr && !line.empty()) options_.log(options_.log_user, line.c_str());
  }

 private:
  const rg_executable_options& options_;
  Cancelled cancelled_;
  std::shared_ptr<std::atomic<bool>> stopped_ = std::make_shared<std::atomic<bool>>(false);
};

absl::Status CheckOptions(const rg_executable_options& options) {
  if (options.streams < 0 || options.streams > 64) {
    return absl::InvalidArgumentError(
        absl::StrCat("rg_executable_options.streams is ", options.streams, ": 0 to 64 is needed"));
  }
  if (options.accumulate == nullptr && options.num_accumulate != 0) {
    return absl::InvalidArgumentError("rg_executable_options.accumulate is null");
  }
  if (options.max_phases < 0 || options.max_phases > kMostPhases) {
    return absl::InvalidArgumentError(absl::StrCat("rg_executable_options.max_phases is ",
                                                   options.max_phases, ": 0 to ", kMostPhases,
                                                   " is needed"));
  }
  if (options.max_phases > 1 && (options.caller_workspace == 0 || options.accumulate != nullptr)) {
    return absl::InvalidArgumentError(
        "rg_executable_options.max_phases is more than 1: that wants caller_workspace, and no "
        "accumulate");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Device>> DeviceFor(const rg_device& device, const Settings& settings,
                                                  const Cancelled& cancelled) {
  DeviceChoices choices = device.choices;
  RG_RETURN_IF_ERROR(settings.Apply(choices));
  choices.host.compile.cancelled = choices.cuda.compile.cancelled = choices.hip.compile.cancelled =
      cancelled;
  return MakeDevice(device.name, choices);
}

// Nothing but the sum itself may be written where the sum's other operand lies: the run reads it
// there when the sum is made.
absl::Status CheckAccumulated(const CompiledPlan& compiled, absl::Span<const uint32_t> outputs) {
  for (const uint32_t output : outputs) {
    const ValueId sum = BehindViews(compiled.graph, *compiled.graph.outputs()[output].value);
    for (const Placement& p : compiled.memory.placements) {
      if (p.place != Placement::kOutput || p.number != output || p.value == sum) continue;
      return absl::InternalError(
          absl::StrCat("output ", output, " is written before it is added to"));
    }
  }
  return absl::OkStatus();
}

absl::Status AllocateWorkspace(rg_executable& made) {
  made.workspace_bytes = made.executable->program().workspace_bytes();
  if (made.caller_workspace || made.allocator.allocate == nullptr || made.workspace_bytes == 0) {
    return absl::OkStatus();
  }
  const auto bytes = static_cast<size_t>(made.workspace_bytes);
  made.workspace = made.allocator.allocate(made.allocator.user, bytes, kArenaAlignment);
  if (made.workspace == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the caller's allocator has no ", bytes, " bytes for the workspace"));
  }
  const auto address = reinterpret_cast<uintptr_t>(made.workspace);
  if (address % kArenaAlignment == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the caller's allocator gave an address that ",
                                                 kArenaAlignment, " does not divide"));
}

absl::StatusOr<std::unique_ptr<rg_executable>> Make(const rg_graph& given, const rg_device& device,
                                                    const rg_executable_options& options) {
  RG_RETURN_IF_ERROR(CheckOptions(options));
  RG_ASSIGN_OR_RETURN(const Settings settings, ParseSettings(options.settings));
  auto made = std::make_unique<rg_executable>();
  Watcher watcher(options);
  BackwardGraph graph = given.graph;
  if (options.accumulate != nullptr) {
    RG_ASSIGN_OR_RETURN(AccumulatingGraph accumulating,
                        AccumulateOutputs(graph, {options.accumulate, options.num_accumulate}));
    graph = std::move(accumulating.graph);
    made->accumulated = std::move(accumulating.outputs);
  }
  RG_ASSIGN_OR_RETURN(made->device, DeviceFor(device, settings, watcher.cancelled()));
  made->seconds.Lap("device");
  RG_ASSIGN_OR_RETURN(OpenedGraph opened, OpenFor(graph, options.spec, options.max_memory_bytes,
                                                  settings, made->device.get()));
  made->seconds.Lap("options");
  watcher.Log(opened.spec_note);

  ExecutableOptions how;
  settings.Apply(how);
  how.spec = ChosenSpec{opened.spec, opened.spec_text, opened.spec_note};
  how.plan = opened.options;
  how.plan.decisions = false;  // made where somebody asks for them
  if (!given.sizes.empty()) {
    how.patterns = given.patterns;
    how.sizes = given.sizes;
    how.program.record_new_addresses = false;
  }
  how.streams = options.streams;
  how.most_phases = std::max<int32_t>(options.max_phases, 1);
  how.cancelled = watcher.cancelled();
  bool planned = false;
  how.progress = [&](ExecutableStage stage, const DeviceSpec& spec) {
    // The first plan is a lap of its own; those that are made for spills count as loading.
    if (stage == ExecutableStage::kCompile && !std::exchange(planned, true)) {
      made->seconds.Lap("plan");
    }
    watcher.Begin(stage, spec);
  };
  made->allocator = device.allocator;
  made->caller_workspace = options.caller_workspace != 0;
  made->runnable = how.runnable;
  how.program.caller_workspace = made->caller_workspace || made->allocator.allocate != nullptr;
  RG_ASSIGN_OR_RETURN(made->executable, Executable::Make(graph, *made->device, how));
  for (const std::string& note : made->device->TakeNotes()) watcher.Log(note);
  RG_RETURN_IF_ERROR(CheckAccumulated(made->executable->compiled(), made->accumulated));
  if (made->runnable) {
    RG_RETURN_IF_ERROR(AllocateWorkspace(*made));
    for (const WorkspaceBlock& block : made->executable->program().blocks()) {
      made->blocks.push_back({static_cast<size_t>(block.bytes), block.first, block.last});
    }
  }
  made->inputs.resize(InputNodes(graph).size());
  made->planned = {{std::move(opened)}};
  if (made->device->choices() != nullptr) made->planned.choices = *made->device->choices();
  made->seconds.Lap("load");
  const PlanSummary& summary = made->executable->compiled().plan.summary;
  watcher.Log(absl::StrCat(summary.kernels, " kernels and library calls, predicted to take ",
                           PrintTime(summary.price_ps)));
  if (made->executable->spilling() > 0) {
    watcher.Log(absl::StrCat(made->executable->spilling(), " kernels spill registers"));
  }
  return made;
}

// The plan with the decisions that shaped it, which planning for a run leaves out.
absl::StatusOr<PlannedGraph> WithDecisions(const rg_executable& executable) {
  PlannedGraph planned = executable.planned;
  planned.planned = {executable.executable->graph(), executable.executable->plan()};
  RG_ASSIGN_OR_RETURN(Planned explained, executable.executable->Explained(planned.original));
  planned.planned.plan.decisions = std::move(explained.plan.decisions);
  return planned;
}

absl::Status CheckCount(size_t given, size_t wanted, absl::string_view what) {
  if (given == wanted) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("run has ", given, " ", what, ": the graph has ", wanted));
}

// The addresses of a run, as the program takes them.
struct RunAddresses {
  absl::Span<const void* const> inputs;
  absl::Span<void* const> outputs;
  void* workspace = nullptr;
  std::optional<absl::Span<void* const>> blocks;  // in place of it
};

absl::Status NoWorkspaceBeside(const rg_run& run) {
  if (run.workspace == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError("run.workspace is given beside run.blocks: give one of them");
}

absl::StatusOr<RunAddresses> AddressesOf(rg_executable& e, const rg_run& run) {
  if (!e.runnable) {
    return absl::FailedPreconditionError("the executable was made with runnable = false");
  }
  const size_t own = e.inputs.size() - e.accumulated.size();
  RG_RETURN_IF_ERROR(CheckCount(run.num_inputs, own, "inputs"));
  RG_RETURN_IF_ERROR(
      CheckCount(run.num_outputs, e.executable->graph().outputs().size(), "outputs"));
  if (run.num_inputs > 0) RG_RETURN_IF_ERROR(NotNull(run.inputs, "run.inputs"));
  if (run.num_outputs > 0) RG_RETURN_IF_ERROR(NotNull(run.outputs, "run.outputs"));
  RunAddresses addresses{.inputs = {run.inputs, run.num_inputs},
                         .outputs = {run.outputs, run.num_outputs},
                         .workspace = e.workspace};
  if (!e.accumulated.empty()) {
    std::copy(run.inputs, run.inputs + own, e.inputs.begin());
    for (size_t i = 0; i < e.accumulated.size(); ++i) {
      e.inputs[own + i] = run.outputs[e.accumulated[i]];
    }
    addresses.inputs = e.inputs;
  }
  if (e.caller_workspace && run.blocks != nullptr) {
    RG_RETURN_IF_ERROR(NoWorkspaceBeside(run));
    addresses.blocks.emplace(run.blocks, run.num_blocks);
  } else if (run.blocks != nullptr || run.before_phase != nullptr) {
    return absl::InvalidArgumentError(
        "run.blocks or run.before_phase is given without the other, or without caller_workspace");
  } else if (e.caller_workspace) {
    if (run.workspace_bytes < static_cast<size_t>(e.workspace_bytes)) {
      return absl::InvalidArgumentError(absl::StrCat("run.workspace_bytes is ", run.workspace_bytes,
                                                     ": ", e.workspace_bytes, " are needed"));
    }
    addresses.workspace = run.workspace;
  } else if (run.workspace != nullptr) {
    return absl::InvalidArgumentError(
        "run.workspace is given, but the executable has its own: make it with caller_workspace");
  }
  return addresses;
}

absl::Status Run(rg_executable& e, const rg_run& run, const RunAddresses& addresses) {
  const std::optional<void*> stream(run.stream);
  if (!addresses.blocks) {
    return e.executable->Run(addresses.inputs, addresses.outputs, stream, addresses.workspace);
  }
  const auto before = [&](uint32_t phase) -> absl::Status {
    if (run.before_phase == nullptr || run.before_phase(run.phase_user, phase) == 0) {
      return absl::OkStatus();
    }
    return absl::CancelledError(
        absl::StrCat("run.before_phase ended the run before phase ", phase));
  };
  return e.executable->Run(addresses.inputs, addresses.outputs, stream,
                           {*addresses.blocks, before});
}

}  // namespace
}  // namespace retrograd

using retrograd::Guarded;
using retrograd::NotNull;

rg_code rg_executable_create(const rg_graph* graph, rg_device* device,
                             const rg_executable_options* options, rg_executable** executable) {
  return Guarded([&]() -> absl::Status {
    RG_RETURN_IF_ERROR(NotNull(graph, "graph"));
    RG_RETURN_IF_ERROR(NotNull(device, "device"));
    RG_RETURN_IF_ERROR(NotNull(executable, "executable"));
    RG_ASSIGN_OR_RETURN(const rg_executable_options taken,
                        retrograd::Taken(options, "rg_executable_options"));
    RG_ASSIGN_OR_RETURN(std::unique_ptr<rg_executable> made,
                        retrograd::Make(*graph, *device, taken));
    *executable = made.release();
    return absl::OkStatus();
  });
}

rg_code rg_executable_workspace(const rg_executable* executable, size_t* bytes, size_t* alignment) {
  return Guarded([&]() -> absl::Status {
    RG_RETURN_IF_ERROR(NotNull(executable, "executable"));
    if (bytes != nullptr) *bytes = static_cast<size_t>(executable->workspace_bytes);
    if (alignment != nullptr) *alignment = retrograd::kArenaAlignment;
    return absl::OkStatus();
  });
}

rg_code rg_executable_memory(const rg_executable* executable, size_t* host_bytes,
                             size_t* device_bytes) {
  return Guarded([&]() -> absl::Status {
    RG_RETURN_IF_ERROR(NotNull(executable, "executable"));
    if (!executable->runnable) {
      return absl::FailedPreconditionError("the executable was made with runnable = false");
    }
    const retrograd::HeldMemory held = executable->executable->program().held_memory();
    const bool allocates =
        !executable->caller_workspace && executable->allocator.allocate != nullptr;
    const int64_t allocated = allocates ? executable->workspace_bytes : 0;
    if (host_bytes != nullptr) *host_bytes = static_cast<size_t>(held.host_bytes);
    if (device_bytes != nullptr) {
      *device_bytes = static_cast<size_t>(held.device_bytes + allocated);
    }
    return absl::OkStatus();
  });
}

rg_code rg_executable_phases(const rg_executable* executable, rg_phases* phases) {
  return Guarded([&]() -> absl::Status {
    RG_RETURN_IF_ERROR(NotNull(executable, "executable"));
    RG_RETURN_IF_ERROR(NotNull(phases, "phases"));
    if (!executable->runnable) {
      return absl::FailedPreconditionError("the executable was made with runnable = false");
    }
    const retrograd::Program& program = executable->executable->program();
    rg_phases told = RG_INIT(rg_phases);
    told.num_phases = program.phases();
    told.input_last = program.input_phases().data();
    told.output_first = program.output_phases().data();
    told.blocks = executable->blocks.data();
    told.num_blocks = executable->blocks.size();
    return retrograd::Give(told, phases, "rg_phases");
  });
}

rg_code rg_executable_run(rg_executable* executable, const rg_run* run) {
  return Guarded([&]() -> absl::Status {
    RG_RETURN_IF_ERROR(NotNull(executable, "executable"));
    RG_RETURN_IF_ERROR(NotNull(run, "run"));
    RG_ASSIGN_OR_RETURN(const rg_run taken, retrograd::Taken(run, "rg_run"));
    const std::scoped_lock turn(executable->runs);
    RG_ASSIGN_OR_RETURN(const retrograd::RunAddresses addresses,
                        retrograd::AddressesOf(*executable, taken));
    return retrograd::Run(*executable, taken, addresses);
  });
}

rg_code rg_executable_describe(const rg_executable* executable, char** json) {
  return Guarded([&]() -> absl::Status {
    RG_RETURN_IF_ERROR(NotNull(executable, "executable"));
    RG_RETURN_IF_ERROR(NotNull(json, "json"));
    const std::scoped_lock turn(executable->runs);
    RG_ASSIGN_OR_RETURN(
        const std::string told,
        retrograd::Describe(*executable->executable, executable->runnable, executable->seconds));
    RG_ASSIGN_OR_RETURN(*json, retrograd::CallersCopy(told));
    return absl::OkStatus();
  });
}

rg_code rg_executable_explain(const rg_executable* executable, rg_format format, char** text) {
  return Guarded([&]() -> absl::Status {
    RG_RETURN_IF_ERROR(NotNull(executable, "executable"));
    RG_RETURN_IF_ERROR(NotNull(text, "text"));
    RG_ASSIGN_OR_RETURN(const retrograd::PlannedGraph planned,
                        retrograd::WithDecisions(*executable));
    RG_ASSIGN_OR_RETURN(const std::string told, retrograd::Explain(planned, format));
    RG_ASSIGN_OR_RETURN(*text, retrograd::CallersCopy(told));
    return absl::OkStatus();
  });
}

rg_code rg_executable_time_steps(rg_executable* executable, const rg_run* run, int32_t repetitions,
                                 char** json) {
  return Guarded([&]() -> absl::Status {
    RG_RETURN_IF_ERROR(NotNull(executable, "executable"));
    RG_RETURN_IF_ERROR(NotNull(run, "run"));
    RG_RETURN_IF_ERROR(NotNull(json, "json"));
    if (repetitions < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("repetitions is ", repetitions, ": 1 or more is needed"));
    }
    RG_ASSIGN_OR_RETURN(const rg_run taken, retrograd::Taken(run, "rg_run"));
    const std::scoped_lock turn(executable->runs);
    RG_ASSIGN_OR_RETURN(const retrograd::RunAddresses addresses,
                        retrograd::AddressesOf(*executable, taken));
    retrograd::Program& program = executable->executable->program();
    // With this run's workspace, which the steps then keep.
    RG_RETURN_IF_ERROR(retrograd::Run(*executable, taken, addresses));
    RG_ASSIGN_OR_RETURN(const std::vector<retrograd::StepTime> times,
                        program.TimeSteps(addresses.inputs, addresses.outputs, repetitions,
                                          /*cold=*/false));
    const std::string told = retrograd::StepsJson(executable->executable->compiled(), times).dump();
    RG_ASSIGN_OR_RETURN(*json, retrograd::CallersCopy(told));
    return absl::OkStatus();
  });
}

double rg_executable_last_run_us(const rg_executable* executable) {
  if (executable == nullptr || !executable->runnable) return 0;
  return static_cast<double>(executable->executable->program().stats().last_run_ns) / 1e3;
}

void rg_executable_destroy(rg_executable* executable) { delete executable; }
