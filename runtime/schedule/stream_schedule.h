// StreamSchedule: in which order and on which stream the groups of a plan run, what each waits for,
// and when it is predicted to run. Pure; it stands after emission because it orders launches, and
// before the memory plan, which needs to know what may run at the same time.
//
// Invariants, named in Verify():
//   S1  every group is exactly one step
//   S2  a step knows everything that its group depends on to have finished
//   S3  a wait names an earlier step of another stream and is not implied by the other waits
//   S4  a step starts after the end of every step that it knows to have finished
//   S5  a group that fills the chip is ordered with respect to every other group but those in the
//       background
#ifndef RETROGRAD_RUNTIME_SCHEDULE_STREAM_SCHEDULE_H_
#define RETROGRAD_RUNTIME_SCHEDULE_STREAM_SCHEDULE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "fusion/calls/work.h"
#include "fusion/device/interference.h"
#include "fusion/plan/plan.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

enum class ScheduleObjective : uint8_t {
  kLatency,     // of groups that don't fill the chip, the longest remaining path first
  kPeakMemory,  // a step that frees at least as much as it allocates first, then the longest path
};
absl::string_view Name(ScheduleObjective objective);  // "latency", "peak_memory"

struct Step {
  GroupId group{};
  int stream = 0;               // 0: the chain stream, which the caller waits for
  std::vector<uint32_t> waits;  // steps of other streams that must have finished, ascending
  int64_t start_ps = 0;         // predicted, from the start of the first step
  int64_t end_ps = 0;
  bool fills_chip = false;  // runs alone, or beside steps in the background
  bool background = false;  // on a side stream, beside whatever runs
  friend bool operator==(const Step&, const Step&) = default;
};

struct StreamSchedule {
  int streams = 1;
  ScheduleObjective objective = ScheduleObjective::kPeakMemory;
  std::vector<Step> steps;  // in an order that launches may follow; a wait points backwards
  int64_t makespan_ps = 0;

  std::string Print() const;
  absl::Status Verify(const BackwardGraph& graph, const FusionPlan& plan) const;
  friend bool operator==(const StreamSchedule&, const StreamSchedule&) = default;
};

inline constexpr int kMaxStreams = 16;
// Streams that are tried where the schedule chooses: one side stream takes most of the gain, two
// take all.
inline constexpr int kMostChosenStreams = 3;

struct ScheduleOptions {
  // 1 to kMaxStreams; 0: one, or up to kMostChosenStreams where that is predicted to gain and the
  // device has a table of interference.
  int streams = 1;
  // Without a value: peak memory on one stream, where no order changes the time; latency on many.
  std::optional<ScheduleObjective> objective;
  // Blocks that fill the chip: its SMs or CUs. Two such kernels side by side measured slower than
  // one after the other (up to 3.6 times on an H200), so only smaller ones share the chip.
  int64_t chip_blocks = 132;
  // What may run side by side, by measurement: then this says which groups count as filling the
  // chip, too. Empty: all that are smaller than that may.
  InterferenceTable interference;
  // Two groups overlap only where the table's factor is below this, because forking and joining
  // take some of the gain, and where neither is predicted to take longer than the table's own work:
  // more is held up by memory or arithmetic, of which there is no more for two.
  double worth_overlapping = 0.95;
  int64_t most_overlapped_ps = 10'000'000;
  // How much longer a step takes that a step of another stream waits for.
  int64_t edge_ps = 0;
  // With `streams` 0 one more stream is used only where the predicted time is below this part of
  // that with fewer.
  double worth_streams = 0.97;
};

absl::StatusOr<StreamSchedule> ScheduleStreams(const BackwardGraph& graph, const FusionPlan& plan,
                                               const ScheduleOptions& options);

// The inverse of Print(). Fails with the line and what was expected there.
absl::StatusOr<StreamSchedule> ParseStreamSchedule(absl::string_view text);

// Whether the work has at least so many blocks.
bool FillsChip(const Work& work, int64_t chip_blocks);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_SCHEDULE_STREAM_SCHEDULE_H_
