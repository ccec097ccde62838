#include "runtime/schedule/ready_groups.h"

#include <algorithm>

namespace retrograd {

std::vector<int64_t> RemainingPath(const FusionPlan& plan, const GroupDag& dag) {
  const size_t n = plan.groups.size();
  std::vector<int64_t> path(n, 0);
  std::vector<size_t> open(n);
  std::vector<uint32_t> ready;
  for (uint32_t g = 0; g < n; ++g) {
    open[g] = dag.after[g].size();
    if (open[g] == 0) ready.push_back(g);
  }
  while (!ready.empty()) {
    const uint32_t g = ready.back();
    ready.pop_back();
    path[g] += plan.groups[g].price_ps;
    for (uint32_t p : dag.before[g]) {
      path[p] = std::max(path[p], path[g]);
      if (--open[p] == 0) ready.push_back(p);
    }
  }
  return path;
}

MemoryChange::MemoryChange(const BackwardGraph& graph, const FusionPlan& plan)
    : graph_(graph),
      bytes_(graph.num_values(), 0),
      readers_(graph.num_values()),
      left_(graph.num_values(), 0),
      change_(plan.groups.size(), 0),
      done_(plan.groups.size()),
      reads_(plan.groups.size()) {
  for (const Group& group : plan.groups) {
    for (ValueId v : group.outputs) bytes_[graph.value_index(v)] = StorageBytes(graph, plan, v);
  }
  for (const GraphOutput& output : graph.outputs()) {
    if (output.value) bytes_[graph.value_index(*output.value)] = 0;
  }
  for (uint32_t g = 0; g < plan.groups.size(); ++g) {
    reads_[g] = ValuesRead(plan.groups[g]);
    for (ValueId v : reads_[g]) readers_[graph.value_index(v)].push_back(g);
    for (ValueId v : plan.groups[g].outputs) change_[g] += bytes_[graph.value_index(v)];
  }
  for (size_t v = 0; v < readers_.size(); ++v) {
    left_[v] = readers_[v].size();
    if (left_[v] == 1) change_[readers_[v][0]] -= bytes_[v];
  }
}

void MemoryChange::Run(uint32_t group, std::vector<uint32_t>* changed) {
  done_[group] = true;
  for (ValueId value : reads_[group]) {
    const size_t v = graph_.value_index(value);
    if (--left_[v] != 1 || bytes_[v] == 0) continue;
    for (uint32_t reader : readers_[v]) {
      if (!done_[reader]) changed->push_back(reader);
    }
    pending_.push_back(v);
  }
}

void MemoryChange::Apply(const std::vector<uint32_t>& changed) {
  for (size_t i = 0; i < changed.size(); ++i) change_[changed[i]] -= bytes_[pending_[i]];
  pending_.clear();
}

ReadyGroups::ReadyGroups(const BackwardGraph& graph, const FusionPlan& plan, const GroupDag& dag,
                         ScheduleObjective objective, const Neighbours& neighbours)
    : objective_(objective),
      neighbours_(neighbours),
      path_(RemainingPath(plan, dag)),
      change_(graph, plan),
      inside_(plan.groups.size(), false) {
  if (objective != ScheduleObjective::kPeakMemory) return;
  for (uint32_t g = 0; g < plan.groups.size(); ++g) {
    if (neighbours.Background(g)) path_[g] -= plan.groups[g].price_ps;
  }
}

ReadyGroups::Key ReadyGroups::KeyOf(uint32_t group) const {
  const bool by_memory =
      objective_ == ScheduleObjective::kPeakMemory || neighbours_.FillsChip(group);
  const int64_t growth = by_memory ? std::min<int64_t>(change_[group], 1) : 0;
  return {growth, -path_[group], group};
}

void ReadyGroups::Add(uint32_t group) {
  inside_[group] = true;
  ready_.insert(KeyOf(group));
}

void ReadyGroups::Run(uint32_t group) {
  ready_.erase(KeyOf(group));
  inside_[group] = false;
  changed_.clear();
  change_.Run(group, &changed_);
  for (uint32_t c : changed_) {
    if (inside_[c]) ready_.erase(KeyOf(c));
  }
  change_.Apply(changed_);
  for (uint32_t c : changed_) {
    if (inside_[c]) ready_.insert(KeyOf(c));
  }
}

}  // namespace retrograd
