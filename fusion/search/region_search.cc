#include "fusion/search/region_search.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "fusion/search/interval_search.h"
#include "fusion/search/local_search.h"
#include "fusion/search/random_partition.h"

namespace retrograd {
namespace {

std::vector<AtomMask> SetsOf(const Partition& partition) {
  std::vector<AtomMask> sets;
  for (const Partition::Part& part : partition.parts) {
    AtomMask set = 0;
    for (int atom : part.atoms) set |= Bit(atom);
    sets.push_back(set);
  }
  return sets;
}

}  // namespace

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
  if (!exact_) return MergeAll();
  Partition best = exact_->Solve();
  return best.exact ? best : SolveNearby();
}

Partition RegionSearch::MergeAll() const {
  return MergeGreedily(atoms_, book_.pricer(),
                       {.max_priced_ops = options_.max_greedy_ops,
                        .where = options_.merge,
                        .max_ops = options_.limits.max_ops});
}

// Several starts, since moves from one often end where those from another do not.
Partition RegionSearch::SolveNearby() {
  Partition best = MergeAll();
  const auto improve = [&](const std::vector<AtomMask>& start) {
    if (start.empty()) return;
    Partition found = ImproveLocally(*exact_, start, options_.max_local_work);
    if (!found.parts.empty() && found.cost_ps < best.cost_ps) best = std::move(found);
  };
  improve(SetsOf(best));
  std::vector<int> order(atoms_.size());
  std::iota(order.begin(), order.end(), 0);
  improve(SearchIntervals(*exact_, order, options_.max_local_work));
  improve(SearchIntervals(*exact_, LatestOrder(exact_->masks()), options_.max_local_work));
  return best;
}

// From atoms that are kernels of their own, but those that must be together.
Partition RegionSearch::SolveNearby(absl::Span<const Constraint> constraints) {
  std::vector<AtomMask> start;
  AtomMask left = exact_->masks().all();
  for (const Constraint& c : constraints) {
    AtomMask set = c.together ? exact_->masks().Closure(Bit(c.a) | Bit(c.b)) : 0;
    std::erase_if(start, [&](AtomMask other) {
      const bool meet = (set & other) != 0;
      if (meet) set = exact_->masks().Closure(set | other);
      return meet;
    });
    if (set != 0) start.push_back(set);
    left &= ~set;
  }
  ForEachBit(left, [&](int i) { start.push_back(Bit(i)); });
  return ImproveLocally(*exact_, start, options_.max_local_work, constraints);
}

Partition RegionSearch::SolveWith(absl::Span<const Constraint> constraints, int64_t below,
                                  absl::Span<const AtomMask> separated) {
  if (!exact_) return {};
  Partition best = exact_->Solve(constraints, below, separated);
  if (best.exact || constraints.empty()) return best;
  best = SolveNearby(constraints);
  return best.cost_ps < below ? best : Partition{};
}

Partition RegionSearch::ImproveFrom(const std::vector<AtomMask>& start, int64_t below) {
  Partition best = ImproveLocally(*exact_, start, options_.max_local_work);
  return !best.parts.empty() && best.cost_ps < below ? best : Partition{};
}

GroupPrice RegionSearch::SmallestTogether(int a, int b) {
  return exact_ ? exact_->SmallestTogether(a, b) : GroupPrice{};
}

}  // namespace retrograd
