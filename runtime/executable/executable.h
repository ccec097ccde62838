// Executable: a backward graph, planned for a device and ready to run on it. Planning, compiling
// and loading are one step here: what the device can do decides how the plan is compiled, and what
// its compiler says of the kernels goes back into planning.
#ifndef RETROGRAD_RUNTIME_EXECUTABLE_EXECUTABLE_H_
#define RETROGRAD_RUNTIME_EXECUTABLE_EXECUTABLE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "fusion/planner/planner.h"
#include "fusion/planner/sized_patterns.h"
#include "runtime/device/device.h"
#include "runtime/executable/choose_spec.h"
#include "runtime/program/compile.h"
#include "runtime/program/program.h"
#include "runtime/program/stage_seconds.h"

namespace retrograd {

enum class ExecutableStage : uint8_t {
  kPlan,     // plans, or plans again
  kCompile,  // prints the kernels of a plan, compiles and loads them
};

struct ExecutableOptions {
  std::optional<ChosenSpec> spec;  // without a value: SpecOf(device)
  PlanOptions plan;
  // Of a graph that was bound to numbers: the patterns of the graph with symbols, and the numbers.
  std::shared_ptr<SizedPatterns> patterns;
  std::vector<SizeBinding> sizes;
  int streams = 0;                             // see ScheduleOptions; one under a ceiling on memory
  std::optional<ScheduleObjective> objective;  // see ScheduleOptions
  bool memory_reuse = true;                    // off: every stored value has bytes of its own
  bool in_place = true;                        // off: only sums are added to where they lie
  int most_phases = 1;                         // that a run may be cut into, for its peak of memory
  bool early_launches = true;                  // off: no kernel starts before the last has finished
  // Off: each run sorts the indices that it is given, whether they are those of the last run or
  // not.
  bool keep_sorted_indices = true;
  // Off: the first plan is kept, and nothing that is remembered of the graph is read.
  bool plan_again = true;
  // The plan is made again with what library calls were measured to take, where that is not known;
  // the device's cache remembers it for the graph.
  bool measured_calls = false;
  // Off: plans and compiles alone. The kernels then lie in the device's cache, no library call is
  // looked at, and nothing can run.
  bool runnable = true;
  ProgramOptions program;
  // Asked while it plans and between stages. What takes long on the device has options of its own:
  // HostCompileOptions, GpuCompileOptions.
  Cancelled cancelled;
  // Told when a stage begins, with the spec: for those who wait.
  std::function<void(ExecutableStage, const DeviceSpec&)> progress;
};

// A plan is made again where the compiler says that a kernel spills or, where that is asked for,
// the device how long a library call takes. At most so many times in all.
inline constexpr int kMostPlans = 4;

class Executable {
 public:
  // The device must outlive the executable. Kernels of another architecture than the spec's, and a
  // device that does not tell what its compiler made of them, are planned once.
  static absl::StatusOr<Executable> Make(const BackwardGraph& graph, Device& device,
                                         const ExecutableOptions& options = {});
  Executable(Executable&&) = default;
  Executable& operator=(Executable&&) = default;

  // See Program::Run.
  absl::Status Run(absl::Span<const void* const> inputs, absl::Span<void* const> outputs,
                   std::optional<void*> stream = std::nullopt, void* workspace = nullptr) {
    return program_->Run(inputs, outputs, stream, workspace);
  }
  absl::Status Run(absl::Span<const void* const> inputs, absl::Span<void* const> outputs,
                   std::optional<void*> stream, const PhasedRun& phased) {
    return program_->Run(inputs, outputs, stream, phased);
  }

  // Makes the plan that runs again, with the decisions that shaped it. graph: as it was given.
  absl::StatusOr<Planned> Explained(const BackwardGraph& graph) const;

  // Of the last plan, which is the one that runs. Ids of the plan are of its lowered graph.
  const BackwardGraph& graph() const { return compiled_->graph; }
  const FusionPlan& plan() const { return compiled_->plan; }
  // Distinct regions of the first plan whose partition is that of a representative size.
  int64_t kept_regions() const { return kept_regions_; }
  // As compiled, where products that the device cannot make with an epilogue stand alone.
  const CompiledPlan& compiled() const { return *compiled_; }
  // Only of an executable that is runnable, as Run.
  Program& program() const { return *program_; }

  const DeviceSpec& spec() const { return spec_.spec; }
  const std::string& note() const { return spec_.note; }  // ChosenSpec::note
  int plans() const { return plans_; }            // made until the device had nothing new to say
  int64_t spilling() const { return spilling_; }  // kernels that spill all the same
  // What the plan was made with: the caller's report, and what the device said of earlier plans; of
  // other processes' as well with measured_calls.
  const DeviceReport& feedback() const { return feedback_; }
  // Parts of Make: "plan_pattern", what it took to find the pattern; Compile's stages;
  // "load_program", which holds what follows; and "plan_again".
  const StageSeconds& seconds() const { return seconds_; }
  // Host time of loading, of all plans; see ProgramStats.
  int64_t load_calls_ns() const { return load_calls_ns_; }
  const std::map<Op, int64_t>& load_op_ns() const { return load_op_ns_; }
  int64_t load_kernels_ns() const { return load_kernels_ns_; }

 private:
  Executable() = default;

  ChosenSpec spec_;
  PlanOptions plan_options_;  // of the last plan, but for the feedback
  DeviceReport feedback_;
  std::shared_ptr<const CompiledPlan> compiled_;  // the program's, too
  std::unique_ptr<Program> program_;
  int plans_ = 1;
  int64_t kept_regions_ = 0;
  int64_t spilling_ = 0;
  StageSeconds seconds_;
  int64_t load_calls_ns_ = 0, load_kernels_ns_ = 0;
  std::map<Op, int64_t> load_op_ns_;
};

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_EXECUTABLE_EXECUTABLE_H_
