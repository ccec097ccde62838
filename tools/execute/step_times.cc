#include "tools/execute/step_times.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "fusion/ops/call_op.h"
#include "runtime/executable/compiled_kernels.h"

namespace retrograd {

double Median(TimeSamples samples) {
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  return *middle;
}

std::string KindOf(const Group& group) {
  if (const CallLaunch* shared = SharedCallsOf(group)) {
    return std::string(CallOpOf(shared->members[0].call.op).together);
  }
  const Call* call = CallOf(group);
  if (call == nullptr) return "kernel";
  return absl::StrCat(CallOpOf(call->op).name, call->epilogue ? " with an epilogue" : "");
}

std::string OpsOf(const BackwardGraph& graph, const Group& group) {
  std::vector<std::string> names;
  for (NodeId node : group.nodes) names.emplace_back(Name(graph.node(node).op));
  return absl::StrJoin(names, " ");
}

nlohmann::ordered_json StepsJson(const CompiledPlan& compiled, const std::vector<StepTime>& times) {
  nlohmann::ordered_json steps = nlohmann::ordered_json::array();
  for (const StepTime& time : times) {
    const Group& group = compiled.plan.groups[Index(time.group)];
    nlohmann::ordered_json step = {
        {"group", Index(time.group)},
        {"kind", KindOf(group)},
        {"ops", OpsOf(compiled.graph, group)},
        {"predicted_us", static_cast<double>(group.price_ps) / 1e6},
        {"measured_us", Median(time.microseconds)},
        {"least_us", *std::min_element(time.microseconds.begin(), time.microseconds.end())},
        {"read_bytes", group.read_bytes},
        {"written_bytes", group.written_bytes}};
    if (const Call* call = CallOf(group); call != nullptr && !call->epilogue) {
      for (const auto& [name, size] : CallOpOf(call->op).sizes(*call)) step[name] = size;
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

void AddResources(const CompiledPlan& compiled, absl::Span<const KernelResources> kernels,
                  const DeviceSpec& device, nlohmann::ordered_json* steps) {
  if (kernels.empty()) return;
  for (auto& step : *steps) {
    const GroupId id{step["group"].get<uint32_t>()};
    const KernelBody* body = KernelOf(compiled.plan.groups[Index(id)]);
    const auto resources = ResourcesOf(compiled, id, kernels);
    if (body == nullptr || !resources) continue;
    const Footprint footprint = FootprintOf(*body, *resources, device);
    step["registers"] = resources->registers;
    step["predicted_registers"] = body->registers;
    step["spill_bytes"] = resources->spill_bytes;
    step["blocks_per_sm"] = footprint.blocks_per_sm;
    step["occupancy"] = static_cast<double>(footprint.blocks_per_sm * body->schedule.threads) /
                        static_cast<double>(device.max_threads_per_sm);
  }
}

std::string PrintResources(const nlohmann::ordered_json& step) {
  if (!step.contains("registers")) return "";
  const int64_t spilled = step["spill_bytes"].get<int64_t>();
  return absl::StrFormat(", %d registers%s, %.0f%% occupied", step["registers"].get<int64_t>(),
                         spilled > 0 ? absl::StrCat(" and ", spilled, " B spilled") : "",
                         100 * step["occupancy"].get<double>());
}

}  // namespace retrograd
