#include "runtime/memory/lifetimes.h"

#include <algorithm>

#include "fusion/kernel/build/build.h"
#include "graph/reference/reference.h"

namespace retrograd {

void Lifetime::Use(uint32_t step, const HappensBefore& order) {
  uint32_t& through = used_through[order.stream(step)];
  through = std::max(through, order.place(step) + 1);
  last = std::max(last, step);
}

void Lifetime::Merge(const Lifetime& later) {
  first = std::min(first, later.first);
  last = std::max(last, later.last);
  for (size_t s = 0; s < used_through.size(); ++s) {
    used_through[s] = std::max(used_through[s], later.used_through[s]);
  }
}

void Lifetime::MergeSlice(const Lifetime& slice) {
  also_first.push_back(slice.first);
  also_first.insert(also_first.end(), slice.also_first.begin(), slice.also_first.end());
  Merge(slice);
}

bool Lifetime::OverBefore(const Lifetime& other, const HappensBefore& order) const {
  return OverBefore(other.first, order) &&
         std::all_of(other.also_first.begin(), other.also_first.end(),
                     [&](uint32_t step) { return OverBefore(step, order); });
}

bool Lifetime::OverBefore(uint32_t step, const HappensBefore& order) const {
  for (size_t s = 0; s < used_through.size(); ++s) {
    if (order.Known(step, static_cast<int>(s)) < used_through[s]) return false;
  }
  return true;
}

std::vector<StoredValue> StoredValues(const BackwardGraph& graph, const FusionPlan& plan,
                                      const StreamSchedule& schedule) {
  constexpr uint32_t kNowhere = 0xffffffff;
  std::vector<StoredValue> stored(graph.num_values());
  std::vector<bool> present(graph.num_values(), false);
  const std::vector<NodeId> inputs = InputNodes(graph);
  std::vector<uint32_t> input_number(graph.num_nodes(), kNowhere);
  for (uint32_t i = 0; i < inputs.size(); ++i) input_number[Index(inputs[i])] = i;
  const auto at = [&](ValueId v) -> StoredValue& {
    const size_t index = graph.value_index(v);
    if (!present[index]) {
      present[index] = true;
      stored[index].value = v;
      stored[index].bytes = StorageBytes(graph, plan, v);
      stored[index].is_input = input_number[Index(v.node)] != kNowhere;
      if (stored[index].is_input) stored[index].input = input_number[Index(v.node)];
    }
    return stored[index];
  };
  for (uint32_t i = 0; i < schedule.steps.size(); ++i) {
    const Group& group = plan.groups[Index(schedule.steps[i].group)];
    for (ValueId v : ValuesRead(group)) at(v).readers.push_back(i);
    for (ValueId v : group.outputs) at(v).writer = i;
  }
  for (uint32_t o = 0; o < graph.outputs().size(); ++o) {
    const std::optional<ValueId>& value = graph.outputs()[o].value;
    if (value) at(BehindViews(graph, *value)).outputs.push_back(o);
  }
  std::vector<StoredValue> result;
  for (size_t v = 0; v < stored.size(); ++v) {
    if (present[v]) result.push_back(std::move(stored[v]));
  }
  return result;
}

Lifetime LifetimeOf(const StoredValue& value, const HappensBefore& order, int streams) {
  Lifetime lifetime{.used_through = std::vector<uint32_t>(streams, 0)};
  if (value.is_input) {
    lifetime.first = 0;
  } else {
    lifetime.first = value.writer;
    lifetime.Use(value.writer, order);
  }
  for (uint32_t reader : value.readers) lifetime.Use(reader, order);
  return lifetime;
}

}  // namespace retrograd
