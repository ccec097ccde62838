// How a region becomes kernels: exactly where that takes little work, else by merging greedily, by
// runs of its atoms' order and by small moves from both; greedily alone, if it is large.
#ifndef RETROGRAD_FUSION_SEARCH_REGION_SEARCH_H_
#define RETROGRAD_FUSION_SEARCH_REGION_SEARCH_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "fusion/search/exact_search.h"
#include "fusion/search/greedy_search.h"
#include "fusion/search/partition.h"

namespace retrograd {

struct SearchOptions {
  int max_atoms = 40;               // more are merged greedily alone; at most kMaxMaskedAtoms
  SearchLimits limits;              // of an exact search
  int64_t max_local_work = 20'000;  // of the kernels priced from each start where it gave up
  int64_t max_greedy_ops = 60'000;
  bool join = true;  // kernels of the search into larger ones than it looks at
  CombineWhere merge = CombineWhere::kItPays;  // wherever possible: greedily, nothing is searched
  uint64_t random_seed = 0;  // not 0: any legal partition, drawn by this seed (for tests)
};

class RegionSearch {
 public:
  RegionSearch(const std::vector<Atom>& atoms, PriceBook& book, const SearchOptions& options);

  // The best plan found.
  Partition Solve();
  // The best plan found under constraints that costs less than `below`. Plans that have in a kernel
  // all atoms of one of the sets `separated` need not be looked at. No parts and exact: there is
  // none; not exact: none was found within the limits of the search, or the region is too large.
  Partition SolveWith(absl::Span<const Constraint> constraints,
                      int64_t below = ExactSearch::kNoBound,
                      absl::Span<const AtomMask> separated = {});
  // A plan that costs less than `below`, by small moves from `start`; without parts: none found.
  Partition ImproveFrom(const std::vector<AtomMask>& start, int64_t below);
  // Why two atoms fit no kernel, with whatever must stand between them; feasible otherwise.
  GroupPrice SmallestTogether(int a, int b);
  // Whether the region is small enough to be searched; only then can plans be constrained.
  bool searched() const { return exact_.has_value(); }

 private:
  Partition MergeAll() const;
  Partition SolveNearby();
  Partition SolveNearby(absl::Span<const Constraint> constraints);

  const std::vector<Atom>& atoms_;
  PriceBook& book_;
  SearchOptions options_;
  std::optional<ExactSearch> exact_;
};

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_SEARCH_REGION_SEARCH_H_
