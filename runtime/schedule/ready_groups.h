// ReadyGroups: the groups of a plan whose dependencies have been scheduled, the most urgent first.
// Urgency is the time of the longest chain that still depends on a group, so that the chain of
// input gradients leads and a weight gradient, which nobody waits for, fills gaps.
#ifndef RETROGRAD_RUNTIME_SCHEDULE_READY_GROUPS_H_
#define RETROGRAD_RUNTIME_SCHEDULE_READY_GROUPS_H_

#include <cstdint>
#include <set>
#include <tuple>
#include <vector>

#include "fusion/plan/group_dag.h"
#include "fusion/plan/plan.h"
#include "graph/ir/backward_graph.h"
#include "runtime/schedule/neighbours.h"
#include "runtime/schedule/stream_schedule.h"

namespace retrograd {

// Time of the longest chain that starts with each group.
std::vector<int64_t> RemainingPath(const FusionPlan& plan, const GroupDag& dag);

// How much memory in use grows when a group runs now: what it stores less what it is the last to
// read. Inputs and outputs of the graph are the caller's and count nothing.
class MemoryChange {
 public:
  MemoryChange(const BackwardGraph& graph, const FusionPlan& plan);

  int64_t operator[](uint32_t group) const { return change_[group]; }
  // Marks the group as run; `changed` receives the groups whose number differs now.
  void Run(uint32_t group, std::vector<uint32_t>* changed);
  // Applies what Run found; between the two the caller takes `changed` out of its queue.
  void Apply(const std::vector<uint32_t>& changed);

 private:
  const BackwardGraph& graph_;
  std::vector<int64_t> bytes_;                  // by value
  std::vector<std::vector<uint32_t>> readers_;  // by value
  std::vector<size_t> left_;                    // by value: readers that have not run
  std::vector<int64_t> change_;                 // by group
  std::vector<bool> done_;
  std::vector<std::vector<ValueId>> reads_;
  std::vector<size_t> pending_;
};

class ReadyGroups {
 public:
  // A group that fills the chip takes its time whenever it runs, so it goes at once if that frees
  // memory, under either objective. One for the background is ready long before it is needed: where
  // memory counts it is as urgent as who reads it.
  ReadyGroups(const BackwardGraph& graph, const FusionPlan& plan, const GroupDag& dag,
              ScheduleObjective objective, const Neighbours& neighbours);

  // The groups in the set, by urgency.
  template <typename Visit>
  void Each(Visit visit) const {
    for (const Key& key : ready_) {
      if (!visit(std::get<2>(key))) return;
    }
  }
  bool empty() const { return ready_.empty(); }
  uint32_t first() const { return std::get<2>(*ready_.begin()); }
  void Add(uint32_t group);
  // Takes the group out: it runs next.
  void Run(uint32_t group);

 private:
  using Key = std::tuple<int64_t, int64_t, uint32_t>;
  Key KeyOf(uint32_t group) const;

  const ScheduleObjective objective_;
  const Neighbours& neighbours_;
  std::vector<int64_t> path_;
  MemoryChange change_;
  std::set<Key> ready_;
  std::vector<bool> inside_;  // by group
  std::vector<uint32_t> changed_;
};

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_SCHEDULE_READY_GROUPS_H_
