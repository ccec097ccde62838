// How a region becomes kernels: exactly where it is small enough, else greedily.
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
  int max_atoms = 40;   // exact up to here; at most kMaxMaskedAtoms
  SearchLimits limits;  // of an exact search
  int64_t max_greedy_prices = 20'000;
  bool join = true;  // kernels of the search into larger ones than it looks at
  CombineWhere merge = CombineWhere::kItPays;  // wherever possible: greedily, nothing is searched
  uint64_t random_seed = 0;  // not 0: any legal partition, drawn by this seed (for tests)
};

class RegionSearch {
 public:
  RegionSearch(const std::vector<Atom>& atoms, PriceBook& book, const SearchOptions& options);

  // The best plan found.
  Partition Solve();
  // The best plan under constraints that costs less than `below` and has in no kernel all atoms of
  // one of the sets `separated`. No parts and exact: there is none; not exact: the limits of the
  // search were met, or the region is too large.
  Partition SolveWith(absl::Span<const Constraint> constraints,
                      int64_t below = ExactSearch::kNoBound,
                      absl::Span<const AtomMask> separated = {});
  // Why two atoms fit no kernel, with whatever must stand between them; feasible otherwise.
  GroupPrice SmallestTogether(int a, int b);
  // Whether plans are proven; only then can they be constrained.
  bool exact() const { return exact_.has_value(); }

 private:
  const std::vector<Atom>& atoms_;
  PriceBook& book_;
  SearchOptions options_;
  std::optional<ExactSearch> exact_;
};

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_SEARCH_REGION_SEARCH_H_
