#include "fusion/plan/split_epilogues.h"

#include <algorithm>

namespace retrograd {

bool HasEpilogues(const FusionPlan& plan) {
  return std::any_of(plan.groups.begin(), plan.groups.end(),
                     [](const Group& group) { return FusedCallOf(group) != nullptr; });
}

FusionPlan SplitEpilogues(const FusionPlan& plan) {
  FusionPlan split = plan;
  split.groups.clear();
  std::vector<uint32_t> place;  // of a group, or of its product
  for (const Group& group : plan.groups) {
    place.push_back(static_cast<uint32_t>(split.groups.size()));
    if (FusedCallOf(group) == nullptr) {
      split.groups.push_back(group);
      continue;
    }
    auto [product, epilogue] = HalvesOf(group);
    split.groups.push_back(std::move(product));
    split.groups.push_back(std::move(epilogue));
  }
  for (uint32_t n = 0; n < split.group_of.size(); ++n) {
    const uint32_t group = Index(plan.group_of[n]);
    if (group >= plan.groups.size()) continue;  // no group
    const Group& from = plan.groups[group];
    const Call* fused = FusedCallOf(from);
    const bool second = fused != nullptr && fused->results[0].value.node != NodeId{n};
    split.group_of[n] = GroupId{place[group] + (second ? 1 : 0)};
  }
  return split;
}

}  // namespace retrograd
