// What fusion-explain tells, gathered: equal kernels together, with their share of the time, and
// the refused fusions worth reading.
#ifndef RETROGRAD_TOOLS_EXPLAIN_EXPLANATION_H_
#define RETROGRAD_TOOLS_EXPLAIN_EXPLANATION_H_

#include <string>
#include <vector>

#include "runtime/schedule/stream_schedule.h"
#include "tools/support/pipeline.h"

namespace retrograd {

// Groups that run the same kernel: same ops, schedule and price, in different places.
struct KernelKind {
  std::vector<GroupId> groups;
  std::string ops;       // "mul 3, sum 2"
  std::string origins;   // "aten.native_layer_norm_backward, aten.add"; may be empty
  std::string how;       // schedule or library call
  std::string binds;     // "hbm 402669568 B / 4.25 TB/s"
  int64_t total_ps = 0;  // of all its groups
};

// Most expensive first; ties in the order of their first groups.
std::vector<KernelKind> KernelKinds(const BackwardGraph& graph, const FusionPlan& plan);

// A fusion, or a schedule of a chosen fusion, that the plan does without. Decisions with equal
// wording about different places are told once.
struct Refusal {
  const Decision* decision = nullptr;
  std::string sides;  // "mul 2 | sum"
  int64_t times = 1;
};
std::vector<Refusal> Refusals(const BackwardGraph& graph, const FusionPlan& plan);

// Matmuls of the plan that stand for several of the graph, and why; equal wording told once.
struct MergedMatMul {
  const Decision* decision = nullptr;
  int64_t times = 1;
};
std::vector<MergedMatMul> MergedMatMulsOf(const BackwardGraph& graph, const FusionPlan& plan);

// Schedules, prices and impossibilities in turn, each by what the other choice would lose.
std::vector<Refusal> MostTelling(std::vector<Refusal> refusals, size_t most);

// How the group is computed: "row_reduction threads=256 ..., 62 registers", "matmul 512x256x64
// bf16".
std::string DescribeBody(const Group& group);

// "mul 3, sum 2": op names of the nodes by count, in order of first appearance.
std::string CountOps(const BackwardGraph& graph, absl::Span<const NodeId> nodes);

// The same of the ops before decomposition that the nodes came from, each call of them once.
std::string CountOrigins(const BackwardGraph& graph, absl::Span<const NodeId> nodes);

// Bytes in use at most while the plan runs on one stream: inputs, outputs and the arena.
struct PeakMemory {
  int64_t arena_bytes = 0, without_reuse_bytes = 0, inputs_bytes = 0, outputs_bytes = 0;
  int64_t total() const { return arena_bytes + inputs_bytes + outputs_bytes; }
};
absl::StatusOr<PeakMemory> PeakMemoryOf(const PlannedGraph& graph);

// The plan's groups on so many streams; 0: on as many as gain.
absl::StatusOr<StreamSchedule> ScheduleOf(const PlannedGraph& graph, int streams);

// "61.7 ms", "3.4 us"; "1.42 GB", "12 KB" (powers of ten).
std::string PrintTime(int64_t ps);
std::string PrintBytes(int64_t bytes);

// At most 60 lines of at most 120 columns.
std::string ExplainAsText(const PlannedGraph& graph, const PeakMemory& memory,
                          absl::string_view name);
// Everything, as JSON of version kExplanationVersion; fields are only ever added.
inline constexpr int kExplanationVersion = 1;
std::string ExplainAsJson(const PlannedGraph& graph, const PeakMemory& memory,
                          absl::string_view name);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_EXPLAIN_EXPLANATION_H_
