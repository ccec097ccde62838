#include "tests/support/search/brute_force.h"

namespace retrograd {

bool Connected(const RegionMasks& masks, AtomMask set) {
  AtomMask reached = set & -set, before = 0;
  while (reached != before) {
    before = reached;
    ForEachBit(before, [&](int i) { reached |= masks.neighbours(i) & set; });
  }
  return reached == set;
}

std::optional<int64_t> BruteForce::LeastCostAfter(AtomMask done) {
  const RegionMasks& masks = prices_.masks();
  best_.assign(size_t{1} << masks.size(), std::nullopt);
  best_[done] = 0;
  for (AtomMask now = done; now < masks.all(); ++now) {
    if (best_[now]) Extend(0, now, 0);
  }
  return best_[masks.all()];
}

void BruteForce::Extend(int atom, AtomMask done, AtomMask set) {
  const RegionMasks& masks = prices_.masks();
  if (atom == masks.size()) {
    if (set != 0) Try(done, set);
    return;
  }
  Extend(atom + 1, done, set);
  const bool ready = (masks.predecessors(atom) & ~(done | set)) == 0;
  if (ready && (done & Bit(atom)) == 0) Extend(atom + 1, done, set | Bit(atom));
}

void BruteForce::Try(AtomMask done, AtomMask set) {
  const std::optional<int64_t> cost = CostOf(set);
  if (!cost) return;
  std::optional<int64_t>& slot = best_[done | set];
  if (!slot || *best_[done] + *cost < *slot) slot = *best_[done] + *cost;
}

std::optional<int64_t> BruteForce::CostOf(AtomMask set) {
  const auto [at, added] = costs_.try_emplace(set);
  if (added && Connected(prices_.masks(), set) && (!allowed_ || allowed_(set))) {
    const GroupPrice& price = prices_.PriceOf(set);
    if (price.feasible) at->second = pricer_.Cost(price, (set & (set - 1)) != 0);
  }
  return at->second;
}

}  // namespace retrograd
