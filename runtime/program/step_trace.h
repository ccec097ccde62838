// When each step of a program runs, within a run of the whole: what a stream schedule predicts,
// measured.
#ifndef RETROGRAD_RUNTIME_PROGRAM_STEP_TRACE_H_
#define RETROGRAD_RUNTIME_PROGRAM_STEP_TRACE_H_

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "runtime/device/device.h"
#include "runtime/program/commands.h"

namespace retrograd {

// The launches or the call of a group, or a copy to an output.
struct StepSpan {
  GroupId group = kNoGroup;  // kNoGroup: a copy
  int stream = 0;
  double begin_us = 0, end_us = 0;  // from the begin of the first step
};

struct StepTrace {
  std::string source;           // by what the times were taken
  std::string without;          // why not by something better; empty: nothing is
  std::vector<StepSpan> steps;  // in the order of issue
};

// Runs the commands so often and returns the run of median length. A device that records is traced
// as it replays, one recording made for this; by what the device notes of itself if it does, else
// by marks between the steps, which take time of their own. `issue` issues one command as it
// stands.
absl::StatusOr<StepTrace> TraceSteps(const CommandList& list, bool record, int repetitions,
                                     absl::FunctionRef<absl::Status(const Command&)> issue,
                                     Device* device);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_PROGRAM_STEP_TRACE_H_
