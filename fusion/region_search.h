// The best partition of one region into kernels: exact dynamic programming over its downsets.
//
// A state is the set of atoms already computed; a step adds one group whose atoms need nothing
// else. So every group is convex and the groups have no cycle. The cost of a plan is the sum of
// T(S) + margin(S), with no margin for a single atom: unfused is the default. A region with more
// atoms or downsets than the cap is planned greedily, and the gap is then not known to be zero.
#ifndef RETROGRAD_FUSION_REGION_SEARCH_H_
#define RETROGRAD_FUSION_REGION_SEARCH_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "fusion/atoms.h"
#include "fusion/group_pricer.h"

namespace retrograd {

struct SearchOptions {
  int max_atoms = 40;             // exact up to here; at most 64
  int max_downsets = 20000;
  int max_evaluations = 20000;    // kernels built and priced for one region
  uint64_t random_seed = 0;       // not 0: any legal partition, drawn by this seed (for tests)
};

struct Partition {
  struct Part {
    std::vector<int> atoms;  // ascending
    Schedule schedule;
    int64_t ps = 0;          // T(S), without margin
  };
  std::vector<Part> parts;   // in a valid order
  int64_t cost_ps = 0;       // with margins
  bool exact = false;        // proven optimal
};

// Two atoms that must, or must not, share a kernel.
struct Constraint {
  int a = -1, b = -1;
  bool together = false;
};

class RegionSearch {
 public:
  RegionSearch(const std::vector<Atom>& atoms, const GroupPricer& pricer,
               const SearchOptions& options);

  Partition Solve();
  // The best plan under a constraint; parts is empty if there is none (see `Why`).
  Partition SolveWith(const Constraint& constraint);
  // Why the two atoms, with whatever must stand between them, fit no kernel; feasible otherwise.
  GroupPrice SmallestTogether(int a, int b);
  // T of a set of atoms, remembered.
  const GroupPrice& PriceOf(uint64_t atoms);
  std::vector<NodeId> OpsOf(uint64_t atoms) const;

 private:
  Partition Exact(const Constraint* constraint, int64_t upper_bound);
  Partition RandomLegal();
  int64_t CostOf(uint64_t set);  // with margin; kInfeasible if refused
  bool Allowed(uint64_t set, const Constraint* constraint) const;
  uint64_t Closure(uint64_t set) const;  // with all atoms between its members
  int64_t LowerBoundOf(uint64_t set);
  Partition FromSets(std::vector<uint64_t> sets);

  const std::vector<Atom>& atoms_;
  const GroupPricer& pricer_;
  SearchOptions options_;
  std::vector<uint64_t> predecessors_, successors_, neighbours_;  // masks (regions of <= 64 atoms)
  std::vector<uint64_t> ancestors_, descendants_;
  absl::flat_hash_map<uint64_t, GroupPrice> prices_;
  absl::flat_hash_map<uint64_t, int64_t> bounds_;
  int64_t evaluations_ = 0;
};

// Regions of more than 64 atoms: greedy merging over the quotient graph.
Partition MergeGreedily(const std::vector<Atom>& atoms, const GroupPricer& pricer,
                        const SearchOptions& options);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_REGION_SEARCH_H_
