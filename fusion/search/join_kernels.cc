#include "fusion/search/join_kernels.h"

#include <algorithm>
#include <numeric>

#include "fusion/search/greedy_search.h"

namespace retrograd {
namespace {

// Kernels that are priced to join those of a region; each may be long.
constexpr int64_t kMostPrices = 1000;

bool Separates(absl::Span<const Constraint> constraints) {
  return std::any_of(constraints.begin(), constraints.end(),
                     [](const Constraint& c) { return !c.together; });
}

// All atoms in one kernel; no parts where that is not possible.
Partition Whole(const std::vector<Atom>& atoms, const GroupPricer& pricer) {
  Partition whole;
  std::vector<int> all(atoms.size());
  std::iota(all.begin(), all.end(), 0);
  const GroupPrice price = pricer.Evaluate(OpsOfAtoms(atoms, all));
  if (price.feasible) AddPart(std::move(all), price, pricer, whole);
  return whole;
}

}  // namespace

void JoinKernels(const std::vector<Atom>& atoms, const GroupPricer& pricer,
                 int64_t max_searched_ops, absl::Span<const Constraint> constraints,
                 Partition& partition) {
  size_t ops = 0;
  for (const Atom& atom : atoms) ops += atom.ops.size();
  if (partition.parts.size() < 2 || static_cast<int64_t>(ops) <= max_searched_ops) return;
  const auto take = [&](Partition joined) {
    if (joined.parts.empty() || joined.cost_ps >= partition.cost_ps) return;
    partition = std::move(joined);
  };
  if (!Separates(constraints)) take(Whole(atoms, pricer));
  if (partition.parts.size() < 2) return;
  take(MergeGreedily(atoms, pricer, {.max_prices = kMostPrices}, partition, constraints));
}

}  // namespace retrograd
