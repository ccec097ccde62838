// What timing a program step by step found, as JSON.
#ifndef RETROGRAD_TOOLS_EXECUTE_STEP_TIMES_H_
#define RETROGRAD_TOOLS_EXECUTE_STEP_TIMES_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "fusion/device/device_spec.h"
#include "runtime/program/compile.h"
#include "runtime/program/program.h"

namespace retrograd {

double Median(TimeSamples samples);

// "matmul", "attention" or "kernel".
std::string KindOf(const Group& group);

// What a group computes, in one line of op names.
std::string OpsOf(const BackwardGraph& graph, const Group& group);

// One object for each step: its group, kind and ops, predicted and measured microseconds, bytes.
nlohmann::ordered_json StepsJson(const CompiledPlan& compiled, const std::vector<StepTime>& times);

// Adds to the steps that are kernels what the compiler made of them, if it tells: registers,
// spilled bytes, blocks on an SM, and the share of its threads that these are.
void AddResources(const CompiledPlan& compiled, absl::Span<const KernelResources> kernels,
                  const DeviceSpec& device, nlohmann::ordered_json* steps);

// ", 64 registers, 50% occupied" of such a step; empty where nothing was added.
std::string PrintResources(const nlohmann::ordered_json& step);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_EXECUTE_STEP_TIMES_H_
