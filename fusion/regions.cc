#include "fusion/regions.h"

#include <algorithm>
#include <numeric>

#include "absl/container/flat_hash_map.h"
#include "fusion/kernel/build.h"
#include "fusion/region_cuts.h"
#include "fusion/widening_casts.h"

namespace retrograd {
namespace {

class UnionFind {
 public:
  explicit UnionFind(size_t n) : parent_(n) { std::iota(parent_.begin(), parent_.end(), 0); }
  uint32_t Find(uint32_t i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }
  // The smaller number stays, so that regions come out in the order of their first op.
  void Union(uint32_t a, uint32_t b) {
    a = Find(a), b = Find(b);
    parent_[std::max(a, b)] = std::min(a, b);
  }

 private:
  std::vector<uint32_t> parent_;
};

}  // namespace

bool IsBarrier(const BackwardGraph& graph, NodeId id) {
  return graph.pattern(id) == Pattern::kContraction || graph.pattern(id) == Pattern::kAttention;
}

// Ops that a library call has taken over count as barriers of their own.
std::vector<int> BarrierDepths(const BackwardGraph& g, const Consumers& consumers,
                               const std::vector<bool>& taken) {
  const size_t n = g.num_nodes();
  std::vector<int> depth(n, 0);
  for (uint32_t i = 0; i < n; ++i) {
    for (ValueId v : g.operands(NodeId{i})) depth[i] = std::max(depth[i], depth[Index(v.node)]);
    if (IsBarrier(g, NodeId{i}) || taken[i]) ++depth[i];
  }
  // Later is better for what depends on no barrier and for what only grows: beside its first user.
  for (uint32_t i = static_cast<uint32_t>(n); i-- > 0;) {
    const NodeId id{i};
    if (IsBarrier(g, id) || taken[i] || !Computes(g, id)) continue;
    if (depth[i] != 0 && !IsWideningCast(g, id)) continue;
    int latest = -1;
    for (NodeId user : consumers.of(id)) {
      const int d = depth[Index(user)] - (IsBarrier(g, user) || taken[Index(user)] ? 1 : 0);
      latest = latest < 0 ? d : std::min(latest, d);
    }
    depth[i] = std::max(depth[i], latest);
  }
  return depth;
}

std::vector<ValueId> StoredOperands(const BackwardGraph& graph, NodeId id) {
  std::vector<ValueId> out;
  for (ValueId v : graph.operands(id)) {
    v = BehindViews(graph, v);
    if (!IsConstant(graph, v.node)) out.push_back(v);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::vector<Region> FindRegions(const BackwardGraph& g, const Consumers& consumers,
                                const std::vector<bool>& taken) {
  const std::vector<int> depth = BarrierDepths(g, consumers, taken);
  UnionFind sets(g.num_nodes());
  absl::flat_hash_map<std::pair<ValueId, int>, uint32_t> first_reader;
  auto fusible = [&](uint32_t i) {
    return Computes(g, NodeId{i}) && !IsBarrier(g, NodeId{i}) && !taken[i];
  };
  for (uint32_t i = 0; i < g.num_nodes(); ++i) {
    if (!fusible(i)) continue;
    for (ValueId v : StoredOperands(g, NodeId{i})) {
      const uint32_t producer = Index(v.node);
      if (fusible(producer) && depth[producer] == depth[i]) {
        sets.Union(producer, i);
      } else if (g.type(v).elements() >= kSharedElements) {
        auto [at, added] = first_reader.try_emplace({v, depth[i]}, i);
        if (!added) sets.Union(at->second, i);
      }
    }
  }
  std::vector<std::vector<NodeId>> connected;
  absl::flat_hash_map<uint32_t, size_t> number;
  for (uint32_t i = 0; i < g.num_nodes(); ++i) {
    if (!fusible(i)) continue;
    auto [at, added] = number.try_emplace(sets.Find(i), connected.size());
    if (added) connected.emplace_back();
    connected[at->second].push_back(NodeId{i});
  }
  std::vector<Region> regions;
  for (const std::vector<NodeId>& ops : connected) {
    for (std::vector<NodeId>& run : CutIntoRuns(g, ops, kMaxRegionOps)) {
      regions.push_back({std::move(run)});
    }
  }
  std::sort(regions.begin(), regions.end(),
            [](const Region& a, const Region& b) { return a.ops[0] < b.ops[0]; });
  return regions;
}

}  // namespace retrograd
