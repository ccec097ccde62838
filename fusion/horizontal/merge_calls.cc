#include "fusion/horizontal/merge_calls.h"

#include <algorithm>
#include <utility>

namespace retrograd {

Group MergeCalls(absl::Span<const size_t> together, const Price& price,
                 std::vector<Group>& groups) {
  Group merged{.terms = price.terms, .price_ps = price.ps};
  CallLaunch launch;
  const auto append = [](auto& to, const auto& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  for (const size_t g : together) {
    Group& group = groups[g];
    append(merged.nodes, group.nodes);
    append(merged.inputs, group.inputs);
    append(merged.outputs, group.outputs);
    merged.read_bytes += group.read_bytes;
    merged.written_bytes += group.written_bytes;
    launch.members.push_back({.call = std::move(*CallOf(group)),
                              .nodes = std::exchange(group.nodes, {}),
                              .price_ps = group.price_ps,
                              .terms = std::move(group.terms)});
  }
  const auto once = [](auto& list) {
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
  };
  once(merged.nodes);
  once(merged.inputs);
  once(merged.outputs);
  merged.body = std::move(launch);
  return merged;
}

}  // namespace retrograd
