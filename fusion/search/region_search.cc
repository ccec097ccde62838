#include "fusion/search/region_search.h"

#include <algorithm>

#include "fusion/search/random_partition.h"

namespace retrograd {

RegionSearch::RegionSearch(const std::vector<Atom>& atoms, PriceBook& book,
                           const SearchOptions& options)
    : atoms_(atoms), book_(book), options_(options) {
  const size_t most = std::min<size_t>(options.max_atoms, kMaxMaskedAtoms);
  const bool searched = options.merge == CombineWhere::kItPays;
  if (searched && atoms.size() <= most) exact_.emplace(atoms, book, options.limits);
}

Partition RegionSearch::Solve() {
  if (options_.random_seed != 0)
    return RandomPartition(atoms_, book_.pricer(), options_.random_seed);
  if (exact_) {
    Partition best = exact_->Solve();
    if (best.exact) return best;
  }
  return MergeGreedily(atoms_, book_.pricer(),
                       {.max_prices = options_.max_greedy_prices,
                        .where = options_.merge,
                        .max_ops = options_.limits.max_ops});
}

Partition RegionSearch::SolveWith(absl::Span<const Constraint> constraints, int64_t below,
                                  absl::Span<const AtomMask> separated) {
  return exact_ ? exact_->Solve(constraints, below, separated) : Partition{};
}

GroupPrice RegionSearch::SmallestTogether(int a, int b) {
  return exact_ ? exact_->SmallestTogether(a, b) : GroupPrice{};
}

}  // namespace retrograd
