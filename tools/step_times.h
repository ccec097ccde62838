// What timing a program step by step found, as JSON.
#ifndef RETROGRAD_TOOLS_STEP_TIMES_H_
#define RETROGRAD_TOOLS_STEP_TIMES_H_

#include <nlohmann/json.hpp>
#include <vector>

#include "runtime/compile.h"
#include "runtime/program.h"

namespace retrograd {

double Median(TimeSamples samples);

// "matmul", "attention" or "kernel".
const char* KindOf(const Group& group);

// What a group computes, in one line of op names.
std::string OpsOf(const BackwardGraph& graph, const Group& group);

// One object for each step: its group, kind and ops, predicted and measured microseconds, bytes.
nlohmann::ordered_json StepsJson(const CompiledPlan& compiled, const std::vector<StepTime>& times);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_STEP_TIMES_H_
