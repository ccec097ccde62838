// Runs a graph the whole way on the host (plan, emit, schedule, memory, compile, execute) with
// inputs and outputs as plain doubles, so that tests can compare with the reference.
#ifndef RETROGRAD_TESTS_SUPPORT_PLANS_RUN_PLAN_H_
#define RETROGRAD_TESTS_SUPPORT_PLANS_RUN_PLAN_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "fusion/planner/planner.h"
#include "graph/reference/reference.h"
#include "runtime/devices/host_device.h"
#include "runtime/program/compile.h"
#include "runtime/program/program.h"

namespace retrograd {

struct RunSetup {
  std::string device = "h200";
  std::optional<DeviceSpec> spec;  // in the device's place
  PlanOptions plan;
  CompileOptions compile;
  HostDeviceOptions host;
  ProgramOptions program;
  // RunOnHost: with compile.memory.phases. Each block and output is made for its first phase, and
  // what no later phase needs is overwritten and freed.
  bool in_phases = false;
};

struct RunResult {
  Planned planned;
  std::vector<Values> outputs;  // dense row-major; empty for an absent output
  uint32_t phases = 1;
};

absl::StatusOr<RunResult> RunOnHost(const BackwardGraph& graph, const std::vector<Values>& inputs,
                                    const RunSetup& setup);

// The same on a device whose memory is not ours. The setup's host options are not looked at.
absl::StatusOr<RunResult> RunOnDevice(const BackwardGraph& graph, const std::vector<Values>& inputs,
                                      const RunSetup& setup, Device& device);

// Dense row-major values as the bytes of a strided tensor whose first element is the first byte.
std::vector<char> Pack(const TensorType& type, const std::vector<int64_t>& strides,
                       const Values& values);
Values Unpack(const TensorType& type, const std::vector<int64_t>& strides,
              const std::vector<char>& bytes);

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_PLANS_RUN_PLAN_H_
