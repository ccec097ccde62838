// Program: a compiled plan on a device. Kernels are loaded, the workspace is allocated and the
// pointer table is bound when it is loaded; a run fills in the caller's addresses and issues the
// work.
#ifndef RETROGRAD_RUNTIME_PROGRAM_PROGRAM_H_
#define RETROGRAD_RUNTIME_PROGRAM_PROGRAM_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/device/device.h"
#include "runtime/program/compile.h"
#include "runtime/program/held_memory.h"
#include "runtime/program/step_trace.h"

namespace retrograd {

struct ProgramOptions {
  // 0: steps are issued in the schedule's order. Else in an order drawn from this seed among all
  // that its streams and waits allow; a device without real streams then executes in that order.
  uint64_t order_seed = 0;
  // On a device that records: the first run with some addresses is recorded, later ones replay it.
  bool record = true;
  // Where it records: off: a run with addresses that are new to library calls is issued, and
  // recorded when they come again. For programs of which many addresses come once: to record one
  // run takes longer than to issue it, and the device waits meanwhile.
  bool record_new_addresses = true;
  // The caller gives each run its workspace; else the program allocates one when it is loaded.
  bool caller_workspace = false;
  // Told before each library call is loaded, which takes long where implementations are timed:
  // which of how many. An error ends the loading.
  std::function<absl::Status(size_t call, size_t calls)> loading;
};

// What a program did so far.
struct ProgramStats {
  int64_t runs = 0;
  int64_t replays = 0;            // of them by one call
  int64_t moves = 0;              // of these behind moving a recording to other addresses
  std::string unmovable;          // why none moves; empty: it does, or was not to
  int64_t recordings = 0;         // one for each new set of addresses of library calls' operands
  int64_t failed_recordings = 0;  // where the work was issued piece by piece instead
  int64_t recording_ns = 0;       // host time of all recordings
  int64_t last_recording_ns = 0;  // and of the last
  int64_t last_run_ns = 0;        // host time of the last run, a recording included
  // Of loading: library calls, with timing their implementations, and what compiling the kernels
  // takes beyond that.
  int64_t load_calls_ns = 0, load_kernels_ns = 0;
  std::map<Op, int64_t> load_op_ns;  // the parts of load_calls_ns, by the calls' ops
};

// A part of the workspace that is needed from the begin of one phase to the end of another.
struct WorkspaceBlock {
  int64_t offset = 0, bytes = 0;
  uint32_t first = 0, last = 0;  // phases
};

// What a run in phases is given beside addresses. The caller's spans of outputs and blocks are read
// again in each phase: an output must be there in the phase that writes it first (output_phases), a
// block in its first. After a phase an input that no later one reads (input_phases) may go, where
// memory goes by the order of the stream, and so may a block.
struct PhasedRun {
  absl::Span<void* const> blocks;  // multiples of kArenaAlignment
  // Called before each phase but the first; an error ends the run.
  absl::FunctionRef<absl::Status(uint32_t phase)> before;
};

// A library call and the implementation that was loaded for it.
struct CallInUse {
  const Call* call = nullptr;  // of the compiled plan
  std::string implementation;  // in its own words; may be empty
  // Microseconds of one of several runs in a row, as measured when it was chosen; 0: not timed.
  double measured_us = 0;
};

// A group's work, run alone.
struct StepTime {
  GroupId group{};
  TimeSamples microseconds;
};

class Program {
 public:
  // The device must outlive the program, which holds the plan: `compiled` is copied.
  static absl::StatusOr<std::unique_ptr<Program>> Load(std::shared_ptr<const CompiledPlan> plan,
                                                       Device* device,
                                                       const ProgramOptions& options = {});
  static absl::StatusOr<std::unique_ptr<Program>> Load(const CompiledPlan& compiled, Device* device,
                                                       const ProgramOptions& options = {});
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // inputs[i] is the first element of the graph's i-th input node, with that input's strides;
  // outputs[i] receives its i-th output with the strides that it asks for (absent: ignored).
  // Addresses are checked: not null, and aligned as the graph promises. Allocates nothing and does
  // not wait for the device; a set of addresses that is new to the library calls is recorded first
  // (ProgramOptions), which does allocate. On `stream`, a stream as the device's vendor has them
  // (null: the vendor's default stream), or on one of the device's. Runs share the arena, so one on
  // another stream than the last must be ordered after it by the caller. workspace: of
  // workspace_bytes(), a multiple of kArenaAlignment, with caller_workspace; another address than
  // the last run's is as dear as new addresses of inputs.
  absl::Status Run(absl::Span<const void* const> inputs, absl::Span<void* const> outputs,
                   std::optional<void*> stream = std::nullopt, void* workspace = nullptr);

  // The same in phases, with caller_workspace.
  absl::Status Run(absl::Span<const void* const> inputs, absl::Span<void* const> outputs,
                   std::optional<void*> stream, const PhasedRun& phased);
  uint32_t phases() const;
  absl::Span<const WorkspaceBlock> blocks() const;   // the whole workspace, in order
  absl::Span<const uint32_t> input_phases() const;   // by input: the last phase that reads it
  absl::Span<const uint32_t> output_phases() const;  // by output: the phase that writes it first

  // Runs the program, then each group alone, so often; see Device::Time. Waits for the device.
  // Accumulating steps add again and again: the outputs are worth nothing afterwards. `only`: these
  // groups and no others.
  absl::StatusOr<std::vector<StepTime>> TimeSteps(
      absl::Span<const void* const> inputs, absl::Span<void* const> outputs, int repetitions,
      bool cold, std::optional<absl::Span<const GroupId>> only = std::nullopt);

  // When each step runs within a run, of the median run of so many; see step_trace.h. Waits for the
  // device, and leaves the outputs as TimeSteps does.
  absl::StatusOr<StepTrace> Trace(absl::Span<const void* const> inputs,
                                  absl::Span<void* const> outputs, int repetitions);

  // What the compiler made of each kernel; empty where it does not tell.
  absl::Span<const KernelResources> resources() const;

  // In the order of the plan's groups.
  std::vector<CallInUse> CallsInUse() const;

  const ProgramStats& stats() const;
  int64_t arena_bytes() const;
  int64_t scratch_bytes() const;  // for library calls, beside the arena
  int64_t kept_bytes() const;     // that calls hold from run to run, beside both
  // With kept_bytes and what recordings will take; without a workspace that the caller gives.
  HeldMemory held_memory() const;
  int64_t workspace_bytes() const { return arena_bytes() + scratch_bytes(); }

 private:
  struct State;
  explicit Program(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_PROGRAM_PROGRAM_H_
