#include "fusion/search/partition.h"

#include <algorithm>

namespace retrograd {

GroupOps OpsOfAtoms(const std::vector<Atom>& atoms, absl::Span<const int> set) {
  GroupOps group;
  for (int a : set) group.ops.insert(group.ops.end(), atoms[a].ops.begin(), atoms[a].ops.end());
  std::sort(group.ops.begin(), group.ops.end());
  for (int a : set) {
    for (NodeId id : atoms[a].shared) {
      if (!std::binary_search(group.ops.begin(), group.ops.end(), id)) group.unstored.push_back(id);
    }
  }
  for (int a : set) {
    for (const auto& [id, reader] : atoms[a].read_again) {
      if (!std::binary_search(set.begin(), set.end(), reader)) group.kept.push_back(id);
    }
  }
  std::sort(group.kept.begin(), group.kept.end());
  group.kept.erase(std::unique(group.kept.begin(), group.kept.end()), group.kept.end());
  if (group.unstored.empty()) return group;
  std::sort(group.unstored.begin(), group.unstored.end());
  group.unstored.erase(std::unique(group.unstored.begin(), group.unstored.end()),
                       group.unstored.end());
  const auto middle =
      group.ops.insert(group.ops.end(), group.unstored.begin(), group.unstored.end());
  std::inplace_merge(group.ops.begin(), middle, group.ops.end());
  return group;
}

void AddPart(std::vector<int> atoms, const GroupPrice& price, const GroupPricer& pricer,
             Partition& partition) {
  const int64_t cost = pricer.Cost(price, atoms.size() > 1);
  partition.parts.push_back(
      {.atoms = std::move(atoms), .schedule = price.schedule, .ps = price.ps, .cost_ps = cost});
  partition.cost_ps += cost;
}

Partition SinglesOf(const std::vector<Atom>& atoms, const GroupPricer& pricer) {
  Partition singles;
  for (int i = 0; i < static_cast<int>(atoms.size()); ++i) {
    AddPart({i}, pricer.Evaluate(OpsOfAtoms(atoms, {i})), pricer, singles);
  }
  return singles;
}

}  // namespace retrograd
