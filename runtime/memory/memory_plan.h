// MemoryPlan: where every stored value and workspace lies. Pure. It stands after the stream
// schedule, because only what cannot run at the same time may share bytes, and before loading,
// which allocates one arena of the size found here.
//
// Graph inputs and outputs are the caller's memory; everything else lies in the arena.
//
// A run may be cut into phases, one behind the other. Between them the caller can let go of inputs
// that no later phase reads, and makes the outputs and the parts of the arena that the next one
// writes first: a run then holds less at its worst moment. The arena is made of blocks for that,
// one for each pair of phases that a storage is first and last used in.
//
// Invariants, named in Verify():
//   M1  bytes of the arena that two storages share are never in use by both: all uses of one have
//       finished, by the schedule's own ordering, before the first use of the other
//   M2  every stored value has one placement, large enough for its layout, inside the arena or at
//       an input or output of the graph with that very value
//   M3  offsets are multiples of kArenaAlignment, except those of the parts of a concat in place
//   M4  a value reuses the bytes of another only where the plan permits it, and after every other
//   use
//       of that value; an accumulate step always reuses the bytes of the value that it adds to
//   M5  a part of a concat in place lies inside the whole, at the offset that the plan has; neither
//       part nor whole reuses bytes, and no value reuses theirs
//   M6  phases begin at ascending steps, the first at step 0; blocks lie one behind the other and
//       cover the arena; a storage lies in one block, whose phases include all its uses
#ifndef RETROGRAD_RUNTIME_MEMORY_MEMORY_PLAN_H_
#define RETROGRAD_RUNTIME_MEMORY_MEMORY_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "fusion/plan/plan.h"
#include "graph/ir/backward_graph.h"
#include "runtime/device/device.h"
#include "runtime/memory/phases.h"
#include "runtime/schedule/stream_schedule.h"

namespace retrograd {

struct Placement {
  enum Place : uint8_t { kArena, kInput, kOutput };
  ValueId value;
  Place place = kArena;
  int64_t offset = 0;                 // kArena: bytes
  uint32_t number = 0;                // kInput, kOutput: which of the graph's
  int64_t bytes = 0;                  // from the first element to the last
  uint32_t first = 0, last = 0;       // steps that first and last use it, in launch order
  std::optional<ValueId> takes_over;  // it reuses the bytes of this value, in place
  std::optional<ValueId> inside;      // it is a part of this concat in place
  friend bool operator==(const Placement&, const Placement&) = default;
};

// Scratch memory of one group while it runs.
struct Workspace {
  GroupId group{};
  int64_t offset = 0;
  int64_t bytes = 0;
  uint32_t step = 0;
  friend bool operator==(const Workspace&, const Workspace&) = default;
};

// An output that no kernel writes where the host wants it: it lists a value a second time, passes
// an input on, or asks for other strides than the stored value has.
struct OutputCopy {
  uint32_t output = 0;
  ValueId value;  // the output's own, which may be a view of a stored value
  friend bool operator==(const OutputCopy&, const OutputCopy&) = default;
};

// A part of the arena that is needed from the begin of one phase to the end of another.
struct ArenaBlock {
  int64_t offset = 0;
  int64_t bytes = 0;
  uint32_t first = 0, last = 0;  // phases
  friend bool operator==(const ArenaBlock&, const ArenaBlock&) = default;
};

struct MemoryPlan {
  std::vector<Placement> placements;  // in the order of their values
  std::vector<Workspace> workspaces;  // in the order of their groups
  std::vector<OutputCopy> copies;     // made after the last step
  int64_t arena_bytes = 0;
  int64_t bytes_without_reuse = 0;     // arena_bytes of a plan with reuse off
  std::vector<uint32_t> phases = {0};  // the first step of each, ascending
  std::vector<ArenaBlock> blocks;      // in the order of their offsets

  uint32_t PhaseOf(uint32_t step) const;
  const Placement* Find(ValueId value) const;  // nullptr if it has none
  std::string Print() const;
  absl::Status Verify(const BackwardGraph& graph, const FusionPlan& plan,
                      const StreamSchedule& schedule) const;
  friend bool operator==(const MemoryPlan&, const MemoryPlan&) = default;
};

struct MemoryOptions {
  bool reuse = true;               // off: every value has bytes of its own
  bool in_place = true;            // off: no value takes over another's bytes that need not
  bool overwrite_donated = false;  // donated inputs may be reused after their last use
  PhaseOptions phases;
};

absl::StatusOr<MemoryPlan> PlanMemory(const BackwardGraph& graph, const FusionPlan& plan,
                                      const StreamSchedule& schedule, const MemoryOptions& options);

// The inverse of Print(). Fails with the line and what was expected there.
absl::StatusOr<MemoryPlan> ParseMemoryPlan(absl::string_view text);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_MEMORY_MEMORY_PLAN_H_
