#include "tools/run/run.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "fusion/plan/group_dag.h"
#include "graph/base/status.h"
#include "graph/reference/reference.h"
#include "models/models.h"
#include "runtime/executable/executable.h"
#include "tools/execute/device_tensors.h"
#include "tools/execute/element_values.h"
#include "tools/execute/gradient_errors.h"
#include "tools/execute/gradient_roundings.h"
#include "tools/execute/make_device.h"
#include "tools/execute/make_executable.h"
#include "tools/execute/step_times.h"
#include "tools/execute/timeline.h"
#include "tools/execute/tuned_file.h"
#include "tools/support/safetensors.h"
#include "tools/support/text_file.h"

namespace retrograd {
namespace {

// Output number o, row-major, as doubles.
absl::StatusOr<std::vector<double>> ReadOutput(const BackwardGraph& graph, size_t o,
                                               const void* data, Device* device) {
  const GraphOutput& output = graph.outputs()[o];
  const TensorType& type = graph.type(*output.value);
  const std::vector<int64_t> strides = StridesOr(output.strides, type.shape);
  std::string bytes(static_cast<size_t>(SpanElements(type.shape, strides) * SizeBytes(type.dtype)),
                    '\0');
  RG_RETURN_IF_ERROR(device->CopyOut(bytes.data(), data, static_cast<int64_t>(bytes.size())));
  return ElementValues(bytes, type, strides);
}

absl::StatusOr<std::vector<Gradient>> Compare(const BackwardGraph& graph, const Bundle& bundle,
                                              absl::Span<void* const> outputs, Device* device) {
  std::vector<Gradient> gradients;
  for (size_t o = 0; o < graph.outputs().size(); ++o) {
    const GraphOutput& output = graph.outputs()[o];
    if (!output.value) continue;
    const std::string key = absl::StrCat("gradient/", o);
    const BundleTensor* tensor = bundle.Find(key);
    const TensorType& type = graph.type(*output.value);
    if (tensor == nullptr || tensor->type.shape != type.shape) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "the bundle has no \"%s\" of shape %s (gradient of %s); record one with bundle=True", key,
          type.Print(), output.name));
    }
    if (tensor->type.dtype != type.dtype) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "\"%s\" of the bundle is %s, but the gradient of %s is %s: record it for this graph", key,
          tensor->type.Print(), output.name, type.Print()));
    }
    Gradient gradient{.name = output.name.empty() ? key : output.name};
    RG_ASSIGN_OR_RETURN(gradient.computed, ReadOutput(graph, o, outputs[o], device));
    gradient.recorded =
        ElementValues(bundle.Bytes(*tensor), tensor->type, DenseStrides(tensor->type.shape));
    gradients.push_back(std::move(gradient));
  }
  return gradients;
}

absl::Status SaveGradients(const BackwardGraph& graph, absl::Span<void* const> outputs,
                           Device* device, const std::string& path) {
  Bundle bundle;
  for (size_t o = 0; o < graph.outputs().size(); ++o) {
    const GraphOutput& output = graph.outputs()[o];
    if (!output.value) continue;
    const TensorType& type = graph.type(*output.value);
    Buffers buffers(device);
    RG_ASSIGN_OR_RETURN(void* const packed, buffers.Allocate(type.size_bytes()));
    RG_RETURN_IF_ERROR(device->CopyStrided(0, type.dtype, type.shape, packed,
                                           DenseStrides(type.shape), outputs[o],
                                           StridesOr(output.strides, type.shape)));
    std::string dense(static_cast<size_t>(type.size_bytes()), '\0');
    RG_RETURN_IF_ERROR(device->CopyOut(dense.data(), packed, type.size_bytes()));
    bundle.Add(absl::StrCat("gradient/", o), type, dense);
  }
  return SaveBundle(bundle, path);
}

// Beside a gradient's error.
const char* Verdict(const GradientError& e) {
  if (!e.ok) return "   <-- beyond the tolerance";
  return e.rounding ? "   within rounding: its terms cancel" : "";
}

// Prints the table; true if every gradient is right.
bool PrintErrors(const std::vector<GradientError>& errors, double tolerance, std::FILE* out) {
  std::fprintf(out, "  error     gradient\n");
  double worst = 0;
  size_t below = 0, wrong = 0;
  for (const GradientError& e : errors) {
    if (e.below_floor) {
      ++below;
    } else {
      std::fprintf(out, "  %-8.2g  %s%s\n", e.error, e.name.c_str(), Verdict(e));
    }
    if (!e.ok) ++wrong;
    worst = std::isnan(e.error) ? e.error : std::max(worst, e.error);
  }
  if (below > 0) {
    std::fprintf(out,
                 "  below the floor of %g x the norm of all gradients, error relative to it:\n",
                 kFloorShare);
    for (const GradientError& e : errors) {
      if (!e.below_floor) continue;
      std::fprintf(out, "  %-8.2g  %s (norm %.2g)%s\n", e.error, e.name.c_str(), e.norm,
                   Verdict(e));
    }
  }
  std::fprintf(out, "%zu gradients, largest error %.2g, tolerance %g (%s): %s\n", errors.size(),
               worst, tolerance, tolerance < 1e-3 ? "fp32 throughout" : "bf16 or fp16 values",
               wrong == 0 ? "ok" : absl::StrCat(wrong, " wrong").c_str());
  return wrong == 0;
}

// To each gradient, which there is for each output that the host expects.
void AddRoundings(const BackwardGraph& graph, const std::vector<double>& roundings,
                  std::vector<Gradient>& gradients) {
  size_t next = 0;
  for (size_t o = 0; o < graph.outputs().size(); ++o) {
    if (graph.outputs()[o].value) gradients[next++].rounding = roundings[o];
  }
}

// Whether every gradient is right. What rounding may add is evaluated on the CPU, which takes
// longer than the run, and so only where a gradient is beyond the tolerance.
absl::StatusOr<bool> Check(const BackwardGraph& graph, const Bundle& bundle,
                           absl::Span<void* const> outputs, Device* device, Progress* progress,
                           std::FILE* out) {
  RG_ASSIGN_OR_RETURN(std::vector<Gradient> gradients, Compare(graph, bundle, outputs, device));
  const double tolerance = ToleranceFor(graph);
  std::vector<GradientError> errors = GradientErrors(gradients, tolerance);
  if (!std::all_of(errors.begin(), errors.end(), [](const auto& e) { return e.ok; })) {
    progress->Step("evaluating what rounding may add to the gradients");
    const absl::StatusOr<std::vector<double>> roundings = GradientRoundings(graph, bundle);
    if (roundings.ok()) {
      AddRoundings(graph, *roundings, gradients);
      errors = GradientErrors(gradients, tolerance);
    } else {
      std::fprintf(out, "  what rounding may add is not known: %s\n",
                   roundings.status().ToString().c_str());
    }
  }
  return PrintErrors(errors, tolerance, out);
}

absl::StatusOr<std::string> BundlePath(const RunArguments& arguments) {
  if (!arguments.inputs.empty()) return arguments.inputs;
  const std::optional<std::string> recorded = RecordedBundle(arguments.plan.graph);
  if (recorded) return *recorded;
  return absl::NotFoundError(absl::StrCat(
      "no inputs are recorded beside ", arguments.plan.graph,
      "; give a bundle with --inputs FILE.safetensors (export_backward(..., bundle=True) writes "
      "one), or draw some with --random-inputs SEED to see times"));
}

// The bytes of each gradient; empty where the host expects none.
absl::StatusOr<std::vector<std::string>> OutputBytes(const BackwardGraph& graph,
                                                     absl::Span<void* const> outputs,
                                                     Device* device) {
  std::vector<std::string> bytes(outputs.size());
  for (size_t o = 0; o < outputs.size(); ++o) {
    const GraphOutput& output = graph.outputs()[o];
    if (!output.value) continue;
    const TensorType& type = graph.type(*output.value);
    bytes[o].resize(SpanElements(type.shape, StridesOr(output.strides, type.shape)) *
                    SizeBytes(type.dtype));
    RG_RETURN_IF_ERROR(
        device->CopyOut(bytes[o].data(), outputs[o], static_cast<int64_t>(bytes[o].size())));
  }
  return bytes;
}

// Runs the program again and compares with what the first run left in the outputs, which are
// overwritten before each run with bytes of no gradient. True if all runs gave the same bits.
absl::StatusOr<bool> CheckRepeats(const RunArguments& arguments, const BackwardGraph& graph,
                                  Program* program, Device* device,
                                  absl::Span<const void* const> inputs,
                                  absl::Span<void* const> outputs) {
  RG_ASSIGN_OR_RETURN(const std::vector<std::string> first, OutputBytes(graph, outputs, device));
  int unequal = 0;
  for (int run = 0; run < arguments.repeat_check; ++run) {
    for (size_t o = 0; o < outputs.size(); ++o) {
      const std::string filler(first[o].size(), '\x7b');
      RG_RETURN_IF_ERROR(
          device->CopyIn(outputs[o], filler.data(), static_cast<int64_t>(filler.size())));
    }
    RG_RETURN_IF_ERROR(program->Run(inputs, outputs));
    RG_RETURN_IF_ERROR(device->Synchronize());
    RG_ASSIGN_OR_RETURN(const std::vector<std::string> again, OutputBytes(graph, outputs, device));
    for (size_t o = 0; o < outputs.size(); ++o) {
      if (again[o] == first[o]) continue;
      ++unequal;
      std::fprintf(stderr, "  run %d differs in %s\n", run + 2, graph.outputs()[o].name.c_str());
    }
  }
  std::FILE* const out = arguments.json ? stderr : stdout;
  std::fprintf(out, "%d more runs: %s\n", arguments.repeat_check,
               unequal == 0 ? "the same bits in every gradient"
                            : absl::StrCat(unequal, " gradients differ").c_str());
  return unequal == 0;
}

// Adds to the steps that are library calls which implementation makes each, and lines of what
// others took.
void AddMakers(const CompiledPlan& compiled, const Program& program,
               const std::vector<StepTime>& times, nlohmann::ordered_json* steps) {
  std::map<uint32_t, std::string> makers;  // by node
  for (const CallInUse& used : program.CallsInUse()) {
    makers[Index(used.call->node)] = used.implementation;
  }
  for (size_t i = 0; i < times.size(); ++i) {
    const Group& group = compiled.plan.groups[Index(times[i].group)];
    const CallLaunch* shared = SharedCallsOf(group);
    const Call* call = shared != nullptr ? &shared->members[0].call : CallOf(group);
    const auto maker = call == nullptr ? makers.end() : makers.find(Index(call->node));
    if (maker != makers.end() && !maker->second.empty()) (*steps)[i]["by"] = maker->second;
  }
}

// Times the program and, if asked, each of its kernels and calls.
absl::Status PrintTimes(const RunArguments& arguments, const Executable& executable, Device* device,
                        absl::Span<const void* const> inputs, absl::Span<void* const> outputs) {
  const CompiledPlan& compiled = executable.compiled();
  Program* const program = &executable.program();
  RG_ASSIGN_OR_RETURN(const TimeSamples whole,
                      device->Time([&] { return program->Run(inputs, outputs); }, arguments.repeat,
                                   arguments.cold));
  nlohmann::ordered_json json = {
      {"graph", arguments.plan.graph},
      {"device", arguments.device},
      {"repeat", arguments.repeat},
      {"cold", arguments.cold},
      {"kernels", compiled.plan.summary.kernels},
      {"plans", executable.plans()},
      {"spilling_kernels", executable.spilling()},
      {"arena_bytes", program->arena_bytes()},
      {"scratch_bytes", program->scratch_bytes()},
      {"recordings", program->stats().recordings},
      {"failed_recordings", program->stats().failed_recordings},
      {"recording_us", static_cast<double>(program->stats().recording_ns) / 1e3},
      {"predicted_us", static_cast<double>(compiled.plan.summary.price_ps) / 1e6},
      {"measured_us", Median(whole)},
      {"least_us", *std::min_element(whole.begin(), whole.end())},
      {"most_us", *std::max_element(whole.begin(), whole.end())}};
  std::vector<StepTime> times;
  if (arguments.kernels) {
    RG_ASSIGN_OR_RETURN(times,
                        program->TimeSteps(inputs, outputs, arguments.repeat, arguments.cold));
    json["steps"] = StepsJson(compiled, times);
    AddResources(compiled, program->resources(), executable.spec(), &json["steps"]);
    AddMakers(compiled, *program, times, &json["steps"]);
  }
  if (arguments.json) {
    std::printf("%s\n", json.dump(1).c_str());
    return absl::OkStatus();
  }
  std::printf("median of %d runs: %.1f us on the device (predicted %.1f), least %.1f, most %.1f\n",
              arguments.repeat, Median(whole), json["predicted_us"].get<double>(),
              json["least_us"].get<double>(), json["most_us"].get<double>());
  if (executable.plans() > 1 || executable.spilling() > 0) {
    std::printf("planned %d times, because kernels spilled; %d still do\n", executable.plans(),
                static_cast<int>(executable.spilling()));
  }
  for (size_t i = 0; i < times.size(); ++i) {
    const Group& group = compiled.plan.groups[Index(times[i].group)];
    std::printf("  group %-4d %9.1f us, predicted %9.1f  %s: %.80s%s\n",
                static_cast<int>(Index(times[i].group)), Median(times[i].microseconds),
                static_cast<double>(group.price_ps) / 1e6, KindOf(group).c_str(),
                OpsOf(compiled.graph, group).c_str(), PrintResources(json["steps"][i]).c_str());
    const std::string by = json["steps"][i].value("by", "");
    if (!by.empty())
      std::printf("    by %s\n", absl::StrReplaceAll(by, {{"\n", "\n    "}}).c_str());
  }
  return absl::OkStatus();
}

// Writes both timelines of a run, and says how they compare.
absl::Status WriteTimeline(const RunArguments& arguments, const CompiledPlan& compiled,
                           Program* program, Device* device, absl::Span<const void* const> inputs,
                           absl::Span<void* const> outputs) {
  const int repetitions = arguments.repeat > 0 ? arguments.repeat : kTimelineRuns;
  RG_ASSIGN_OR_RETURN(const TimeSamples untraced,
                      device->Time([&] { return program->Run(inputs, outputs); }, repetitions,
                                   /*cold=*/false));
  RG_ASSIGN_OR_RETURN(StepTrace trace, program->Trace(inputs, outputs, repetitions));
  const Timeline timeline = MakeTimeline(compiled, std::move(trace), Median(untraced));
  RG_RETURN_IF_ERROR(WriteTextFile(arguments.timeline, timeline.ChromeTrace(compiled)));
  std::fputs(timeline.Print().c_str(), arguments.json ? stderr : stdout);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DeviceChoices> DeviceChoicesOf(const RunArguments& arguments) {
  if (arguments.sanitize && arguments.device != "host") {
    return absl::InvalidArgumentError("--sanitize is for --device host");
  }
  DeviceChoices choices{.host = {.seed = arguments.seed}};
  choices.host.compile.check = arguments.sanitize;
  choices.host.compile.warp = arguments.warp;
  choices.cuda.attention.cudnn.deterministic = arguments.deterministic;
  choices.cuda.convolution.cudnn.nondeterministic = !arguments.deterministic;
  choices.cuda.attention.allow_tiled = arguments.tiled_attention;
  choices.cuda.time_calls = choices.hip.time_calls = arguments.time_calls;
  ConvolutionBackends& backends = choices.cuda.convolution.backends;
  RG_ASSIGN_OR_RETURN(backends.input, ParseConvolutionBackends(arguments.conv_bwd_input_backends));
  RG_ASSIGN_OR_RETURN(backends.weight,
                      ParseConvolutionBackends(arguments.conv_bwd_weight_backends));
  choices.host.convolution = backends;
  RG_RETURN_IF_ERROR(Tune(arguments.tuned, arguments.tuning_budget_s, choices));
  return choices;
}

absl::StatusOr<int> RunOn(const RunArguments& arguments, Device& device) {
  Progress progress;
  RG_ASSIGN_OR_RETURN(const OpenedGraph graph, Open(arguments.plan, &progress, &device));
  Bundle bundle;
  if (arguments.random == 0) {
    RG_ASSIGN_OR_RETURN(const std::string bundle_path, BundlePath(arguments));
    RG_ASSIGN_OR_RETURN(bundle, LoadBundle(bundle_path));
  }

  RG_ASSIGN_OR_RETURN(
      const Executable executable,
      MakeExecutable(graph, arguments.plan.graph,
                     {.streams = arguments.streams,
                      .memory_reuse = arguments.memory_reuse,
                      .in_place = arguments.in_place,
                      .most_phases = arguments.phases,
                      .early_launches = arguments.early_launches,
                      .keep_sorted_indices = arguments.keep_sorted_indices,
                      .plan_again = arguments.plan_again,
                      .measured_calls = arguments.measured_calls,
                      .program = {.order_seed = arguments.seed, .record = arguments.record}},
                     device, &progress));
  if (!executable.note().empty()) std::fprintf(stderr, "note: %s\n", executable.note().c_str());
  for (const std::string& note : device.TakeNotes()) {
    std::fprintf(stderr, "note: %s\n", note.c_str());
  }
  if (!arguments.tuned.empty() && device.choices() == nullptr) {
    std::fprintf(stderr, "note: %s changes nothing: %s has one implementation of each call\n",
                 arguments.tuned.c_str(), arguments.device.c_str());
  }
  Program* const program = &executable.program();

  Buffers buffers(&device);
  RG_ASSIGN_OR_RETURN(const std::vector<const void*> inputs,
                      arguments.random != 0
                          ? DrawInputs(graph.original, arguments.random, &device, &buffers)
                          : UploadInputs(graph.original, bundle, &device, &buffers));
  RG_ASSIGN_OR_RETURN(const std::vector<void*> outputs, AllocateOutputs(graph.original, &buffers));
  progress.Step(absl::StrCat("running ", arguments.plan.graph));
  RG_RETURN_IF_ERROR(program->Run(inputs, outputs));
  RG_RETURN_IF_ERROR(device.Synchronize());

  const PlanSummary& summary = executable.plan().summary;
  if (!arguments.json) {
    std::printf("%s: %d ops in %d kernels and calls planned for %s, run on %s; arena %.2f MiB\n",
                arguments.plan.graph.c_str(), static_cast<int>(summary.ops),
                static_cast<int>(summary.kernels), graph.spec.name.c_str(),
                arguments.device.c_str(), static_cast<double>(program->arena_bytes()) / (1 << 20));
  }
  if (!arguments.save.empty()) {
    RG_RETURN_IF_ERROR(SaveGradients(graph.original, outputs, &device, arguments.save));
  }
  int exit_status = 0;
  if (arguments.check) {
    RG_ASSIGN_OR_RETURN(const bool right, Check(graph.original, bundle, outputs, &device, &progress,
                                                arguments.json ? stderr : stdout));
    exit_status = right ? 0 : 1;
  }
  if (arguments.repeat_check > 0) {
    RG_ASSIGN_OR_RETURN(const bool same,
                        CheckRepeats(arguments, graph.original, program, &device, inputs, outputs));
    if (!same) exit_status = 1;
  }
  if (arguments.repeat > 0) {
    RG_RETURN_IF_ERROR(PrintTimes(arguments, executable, &device, inputs, outputs));
  }
  if (!arguments.timeline.empty()) {
    RG_RETURN_IF_ERROR(
        WriteTimeline(arguments, executable.compiled(), program, &device, inputs, outputs));
  }
  return exit_status;
}

int RunCommand(const RunArguments& arguments) {
  const absl::StatusOr<DeviceChoices> choices = DeviceChoicesOf(arguments);
  if (!choices.ok()) return Report("retrograd", choices.status());
  const absl::StatusOr<std::unique_ptr<Device>> device = MakeDevice(arguments.device, *choices);
  if (!device.ok()) return Report("retrograd", device.status());
  const absl::StatusOr<int> exit_status = RunOn(arguments, **device);
  return exit_status.ok() ? *exit_status : Report("retrograd", exit_status.status());
}

}  // namespace retrograd
