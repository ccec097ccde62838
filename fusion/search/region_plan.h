// One region from ops to kernels: atoms, search, recomputation; freely or under given choices. What
// plans, what explains and what answers "what if" all solve regions here.
#ifndef RETROGRAD_FUSION_SEARCH_REGION_PLAN_H_
#define RETROGRAD_FUSION_SEARCH_REGION_PLAN_H_

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "fusion/analysis/regions.h"
#include "fusion/search/region_search.h"

namespace retrograd {

// Two ops that must, or must not, share a kernel.
struct PairChoice {
  NodeId a{}, b{};
  bool together = false;
  friend bool operator==(const PairChoice&, const PairChoice&) = default;
};

struct RegionOptions {
  bool fuse = true;      // false: every op a kernel of its own
  bool contract = true;  // ops into atoms where that never loses
  bool recompute = true;
  std::vector<NodeId> split;  // ascending: ops that no atom has together with their only reader
  SearchOptions search;
};

struct RegionPlan {
  std::vector<Atom> atoms;  // of the partition; a recomputed one is in several of them
  Partition partition;      // no parts: there is none (exact), or the search gave up
};

class RegionPlanner {
 public:
  // `pairs` may be chosen later: where both ops of one fall into an atom, that contraction is
  // undone, and none of their ops is recomputed.
  RegionPlanner(const Region& region, const GroupPricer& pricer, const RegionOptions& options,
                absl::Span<const PairChoice> pairs = {});

  RegionPlan Solve(absl::Span<const PairChoice> choices = {});

  // Why two ops fit no kernel, with whatever must stand between them; feasible otherwise.
  GroupPrice SmallestTogether(NodeId a, NodeId b);
  const std::vector<Atom>& atoms() const { return plain_.atoms; }
  int AtomOf(NodeId id) const;  // an op of the region

 private:
  // Atoms and their search, whose prices are kept from solve to solve.
  struct Workplace {
    std::vector<Atom> atoms;
    std::unique_ptr<RegionSearch> search;
  };
  void Furnish(Workplace& workplace);
  RegionPlan SolveContracted(absl::Span<const PairChoice> choices);
  // Runs one by one, then their kernels joined.
  bool InRuns() const;
  RegionPlan SolveRuns() const;
  // `best` becomes the plan that recomputes producers, if one is cheaper.
  void TryRecomputing(absl::Span<const PairChoice> choices, RegionPlan& best);
  void Climb(RegionPlan& best);
  std::vector<int> AlsoRecomputing(const std::vector<int>& chosen, int producer,
                                   const std::vector<int>& candidates) const;
  bool TryRecomputing(const std::vector<int>& producers, absl::Span<const PairChoice> choices,
                      RegionPlan& best);
  Workplace& Recomputing(const std::vector<int>& producers);
  // Sets of atoms of which no plan that is new has all in one kernel.
  std::vector<AtomMask> ReadersToPart(const std::vector<int>& producers,
                                      const std::vector<Atom>& atoms) const;
  bool Tried(const std::vector<int>& producers) const;
  // The best plan without a choice and without recomputing.
  const Partition& Free();

  const Region region_;
  const GroupPricer& pricer_;
  PriceBook book_;
  RegionOptions options_;
  std::vector<int> kept_;  // atoms that are never recomputed
  Workplace plain_;
  std::optional<Partition> free_;
  // By the producers, atoms of plain_, ascending: what the free search tried to recompute.
  std::optional<std::vector<std::vector<int>>> tried_;
  std::map<std::vector<int>, Workplace> recomputing_;
};

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_SEARCH_REGION_PLAN_H_
