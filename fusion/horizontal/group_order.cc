#include "fusion/horizontal/group_order.h"

#include <algorithm>

namespace retrograd {
namespace {

constexpr uint32_t kNobody = 0xffffffff;

}  // namespace

Successors FindSuccessors(const BackwardGraph& graph, const std::vector<Group>& groups) {
  std::vector<uint32_t> writer(graph.num_values(), kNobody);
  std::vector<std::vector<uint32_t>> readers(graph.num_values());
  for (uint32_t g = 0; g < groups.size(); ++g) {
    for (ValueId v : groups[g].outputs) writer[graph.value_index(v)] = g;
    for (ValueId v : groups[g].inputs) readers[graph.value_index(v)].push_back(g);
  }
  Successors s{std::vector<std::vector<uint32_t>>(groups.size()),
               std::vector<uint32_t>(groups.size(), 0)};
  for (uint32_t g = 0; g < groups.size(); ++g) {
    for (ValueId v : groups[g].inputs) {
      const uint32_t w = writer[graph.value_index(v)];
      if (w != kNobody && w != g) s.after[w].push_back(g);
    }
    for (const Group::InPlace& pair : RequiredInPlace(groups[g])) {
      for (uint32_t reader : readers[graph.value_index(pair.input)]) {
        if (reader != g) s.after[reader].push_back(g);
      }
    }
  }
  for (std::vector<uint32_t>& after : s.after) {
    std::sort(after.begin(), after.end());
    after.erase(std::unique(after.begin(), after.end()), after.end());
    for (uint32_t a : after) ++s.before[a];
  }
  return s;
}

}  // namespace retrograd
