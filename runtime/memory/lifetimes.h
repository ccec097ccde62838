// When each stored value is in use under a schedule: the first stage of the memory plan.
#ifndef RETROGRAD_RUNTIME_MEMORY_LIFETIMES_H_
#define RETROGRAD_RUNTIME_MEMORY_LIFETIMES_H_

#include <cstdint>
#include <vector>

#include "fusion/plan/group_dag.h"
#include "runtime/memory/memory_plan.h"
#include "runtime/schedule/happens_before.h"

namespace retrograd {

// The uses of some bytes. A use "has finished" for a step that the schedule orders after it.
struct Lifetime {
  uint32_t first = 0;                  // the step that writes first; every other use comes after
  std::vector<uint32_t> also_first;    // or one of these: writers of slices, in no order to `first`
  std::vector<uint32_t> used_through;  // by stream: how many of its steps include the last use
  uint32_t last = 0;                   // the largest step number of a use

  void Use(uint32_t step, const HappensBefore& order);
  void Merge(const Lifetime& later);
  // The same for bytes that others write a slice of.
  void MergeSlice(const Lifetime& slice);
  // True if every use has finished when the step starts.
  bool OverBefore(uint32_t step, const HappensBefore& order) const;
  // True if every use has finished before any of the other's.
  bool OverBefore(const Lifetime& other, const HappensBefore& order) const;
};

struct StoredValue {
  static constexpr uint32_t kNoWriter = 0xffffffff;
  ValueId value;
  bool is_input = false;
  uint32_t input = 0;             // number among the graph's inputs
  uint32_t writer = kNoWriter;    // step
  std::vector<uint32_t> readers;  // steps, ascending
  std::vector<uint32_t>
      outputs;  // numbers of the graph's outputs that are this value or a view of it
  int64_t bytes = 0;
};

// Every value that a group stores and every input that one reads or an output passes on, in the
// order of the values.
std::vector<StoredValue> StoredValues(const BackwardGraph& graph, const FusionPlan& plan,
                                      const StreamSchedule& schedule);

Lifetime LifetimeOf(const StoredValue& value, const HappensBefore& order, int streams);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_MEMORY_LIFETIMES_H_
