#include "api/describe.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "fusion/plan/peak_memory.h"
#include "graph/base/status.h"
#include "graph/reference/reference.h"
#include "runtime/compiler/module_cache.h"
#include "runtime/program/commands.h"
#include "runtime/program/program_text.h"
#include "tools/execute/random_inputs.h"
#include "tools/execute/step_times.h"

namespace retrograd {
namespace {

using Json = nlohmann::ordered_json;

// The most bytes alive at once, in the sense of fusion/plan/peak_memory.h, with the scratch memory
// of library calls while one runs.
int64_t PeakWithScratch(const CompiledPlan& compiled, int64_t scratch_bytes) {
  const std::vector<int64_t> live = LiveBytes(compiled.graph, compiled.plan);
  int64_t peak = 0;
  for (size_t i = 0; i < live.size(); ++i) {
    const Group& group = compiled.plan.groups[i];
    const bool call = SharedCallsOf(group) != nullptr ||
                      (CallOf(group) != nullptr && FusedCallOf(group) == nullptr);
    peak = std::max(peak, live[i] + (call ? scratch_bytes : 0));
  }
  return peak;
}

// [name of the dtype, elements from the first to the last] of an input or output.
Json Room(const TensorType& type, const std::vector<int64_t>& strides) {
  return {Name(type.dtype),
          SpanElements(type.shape, strides.empty() ? DenseStrides(type.shape) : strides)};
}

// Each library call's op, and what makes it.
Json CallsJson(const std::vector<CallInUse>& calls) {
  Json list = Json::array();
  for (const CallInUse& used : calls) {
    list.push_back(
        {{"op", Name(used.call->op)}, {"by", used.implementation}, {"us", used.measured_us}});
  }
  return list;
}

// What is known only of what can run.
Json DescribeProgram(const CompiledPlan& compiled, const Program& program) {
  const ProgramStats& stats = program.stats();
  return {{"scratch_bytes", program.scratch_bytes()},
          {"peak_bytes", PeakWithScratch(compiled, program.scratch_bytes()) + program.kept_bytes()},
          {"calls", CallsJson(program.CallsInUse())},
          {"runs", stats.runs},
          {"moves", stats.moves},
          {"unmovable", stats.unmovable},
          {"recordings", stats.recordings},
          {"failed_recordings", stats.failed_recordings},
          {"recording_us", static_cast<double>(stats.recording_ns) / 1e3}};
}

Json GroupCounts(const FusionPlan& plan) {
  Json counts = {{"kernel", 0}, {"matmul", 0}, {"attention", 0}};
  for (const Group& group : plan.groups) {
    if (AliasOf(group) != nullptr) continue;
    const std::string kind(KindOf(group));
    counts[kind] = counts.value(kind, 0) + 1;
  }
  return counts;
}

}  // namespace

absl::StatusOr<std::string> Describe(const Executable& executable, bool runnable,
                                     const StageSeconds& seconds) {
  const CompiledPlan& compiled = executable.compiled();
  const PlanSummary& summary = compiled.plan.summary;
  const BackwardGraph& graph = compiled.graph;
  RG_ASSIGN_OR_RETURN(const std::string text, ProgramText(compiled));
  RG_ASSIGN_OR_RETURN(const CommandList list, BuildCommands(compiled, /*order_seed=*/0));
  const int64_t early = std::count_if(list.commands.begin(), list.commands.end(),
                                      [](const Command& command) { return command.early; });
  Json inputs = Json::array(), outputs = Json::array(), laps = Json::object();
  for (NodeId id : InputNodes(graph)) {
    inputs.push_back(Room(graph.type(id), graph.node(id).input->strides));
    inputs.back().push_back(IntegerLimit(graph, id));
  }
  for (const GraphOutput& output : graph.outputs()) {
    outputs.push_back(output.value ? Room(graph.type(*output.value), output.strides) : Json());
  }
  for (const auto& [stage, took] : seconds.all()) laps[stage] = took;
  for (const auto& [stage, took] : executable.seconds().all()) laps[stage] = took;
  laps["load_library_calls"] = 1e-9 * static_cast<double>(executable.load_calls_ns());
  for (const auto& [op, ns] : executable.load_op_ns()) {
    laps[absl::StrCat("load_", Name(op))] = 1e-9 * static_cast<double>(ns);
  }
  laps["load_kernels"] = 1e-9 * static_cast<double>(executable.load_kernels_ns());
  Json said = {{"spec", executable.spec().name},
               {"spec_note", executable.note()},
               {"ops", summary.ops},
               {"inputs", inputs},
               {"outputs", outputs},
               {"kernels", summary.kernels},
               {"plans", executable.plans()},
               {"spilling_kernels", executable.spilling()},
               {"kept_regions", executable.kept_regions()},
               {"groups", GroupCounts(compiled.plan)},
               {"predicted_us", static_cast<double>(summary.price_ps) / 1e6},
               {"streams", compiled.schedule.streams},
               {"makespan_us", static_cast<double>(compiled.schedule.makespan_ps) / 1e6},
               {"early", early},
               {"digest", Digest(text)},
               {"arena_bytes", compiled.memory.arena_bytes},
               {"seconds", laps}};
  if (runnable) said.update(DescribeProgram(compiled, executable.program()));
  return said.dump();
}

}  // namespace retrograd
