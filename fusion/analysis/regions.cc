#include "fusion/analysis/regions.h"

#include <algorithm>
#include <utility>

#include "fusion/analysis/barrier_depths.h"
#include "fusion/analysis/region_cuts.h"
#include "fusion/kernel/build/build.h"

namespace retrograd {
namespace {

void AddRegions(const BackwardGraph& g, const std::vector<NodeId>& ops,
                std::vector<Region>& regions) {
  std::vector<std::vector<NodeId>> runs = CutIntoRuns(g, ops, kMaxRegionOps);
  if (ops.size() > kMaxJoinedOps) {
    for (std::vector<NodeId>& run : runs) regions.push_back({.ops = std::move(run)});
    return;
  }
  Region region{.ops = ops};
  for (size_t r = 1; r < runs.size(); ++r) region.later_runs.push_back(runs[r].front());
  regions.push_back(std::move(region));
}

}  // namespace

std::vector<Region> FindRegions(const BackwardGraph& g, const Consumers& consumers,
                                const std::vector<bool>& taken, const SinkOptions& sinking) {
  const std::vector<uint32_t> first =
      ComponentsAtDepths(g, BarrierDepths(g, consumers, taken, sinking), taken, sinking.free);
  std::vector<std::vector<NodeId>> connected;
  std::vector<size_t> number(g.num_nodes());
  for (uint32_t i = 0; i < g.num_nodes(); ++i) {
    if (!Computes(g, NodeId{i}) || IsBarrier(g, NodeId{i}) || taken[i]) continue;
    if (first[i] == i) {
      number[i] = connected.size();
      connected.emplace_back();
    }
    connected[number[first[i]]].push_back(NodeId{i});
  }
  std::vector<Region> regions;
  for (const std::vector<NodeId>& ops : connected) AddRegions(g, ops, regions);
  std::sort(regions.begin(), regions.end(),
            [](const Region& a, const Region& b) { return a.ops[0] < b.ops[0]; });
  return regions;
}

}  // namespace retrograd
