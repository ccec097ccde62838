#include "fusion/search/join_kernels.h"

#include <algorithm>
#include <compare>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include "fusion/search/greedy_search.h"

namespace retrograd {
namespace {

// Search bound. Ops of all kernels that are priced to join those of a region; each may be long.
constexpr int64_t kMostPricedOps = 20'000;

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

// What atoms that go well together have in common: how often at most the number of elements changes
// behind them, or a fold stands there, and their own number. An atom that folds stands alone.
// Between two kinds of one level no atom reads another, so that kinds in the order of their levels
// are kernels in a valid order.
struct Kind {
  int level = 0;
  int64_t elements = 0;
  int fold = -1;  // the atom
  friend auto operator<=>(const Kind&, const Kind&) = default;
};

bool Folds(const BackwardGraph& g, const Atom& atom) {
  return std::any_of(atom.ops.begin(), atom.ops.end(), [&](NodeId id) {
    const Pattern p = g.pattern(id);
    return p != Pattern::kPointwise && p != Pattern::kJoin && p != Pattern::kAccumulate;
  });
}

std::vector<Kind> KindsOf(const std::vector<Atom>& atoms, const BackwardGraph& g) {
  std::vector<Kind> kinds(atoms.size());
  for (size_t a = 0; a < atoms.size(); ++a) {
    kinds[a].elements = g.type(atoms[a].ops.back()).elements();
    if (Folds(g, atoms[a])) kinds[a].fold = static_cast<int>(a);
  }
  for (size_t a = atoms.size(); a-- > 0;) {
    for (int p : atoms[a].predecessors) {
      const bool alike = kinds[p].elements == kinds[a].elements && kinds[p].fold == kinds[a].fold;
      kinds[p].level = std::max(kinds[p].level, kinds[a].level + (alike ? 0 : 1));
    }
  }
  return kinds;
}

// Atoms of each kind in one kernel; no parts where that is not possible.
Partition ByKind(const std::vector<Atom>& atoms, const GroupPricer& pricer) {
  const std::vector<Kind> kinds = KindsOf(atoms, pricer.graph());
  std::map<Kind, std::vector<int>, std::greater<>> sets;
  for (size_t a = 0; a < atoms.size(); ++a) sets[kinds[a]].push_back(static_cast<int>(a));
  Partition partition;
  for (auto& [kind, set] : sets) {
    const GroupPrice price = pricer.Evaluate(OpsOfAtoms(atoms, set));
    if (!price.feasible) return {};
    AddPart(std::move(set), price, pricer, partition);
  }
  return partition;
}

}  // namespace

void JoinKernels(const std::vector<Atom>& atoms, const GroupPricer& pricer,
                 int64_t max_searched_ops, absl::Span<const Constraint> constraints,
                 Partition& partition) {
  size_t ops = 0;
  for (const Atom& atom : atoms) ops += atom.ops.size();
  if (partition.parts.size() < 2 || static_cast<int64_t>(ops) <= max_searched_ops) return;
  const auto take = [&](Partition joined) {
    const bool better = !joined.parts.empty() && joined.cost_ps < partition.cost_ps;
    if (better) partition = std::move(joined);
    return better;
  };
  const auto merged = [&](const Partition& start) {
    return MergeGreedily(atoms, pricer, {.max_priced_ops = kMostPricedOps}, start, constraints);
  };
  if (Separates(constraints)) {
    take(merged(partition));
    return;
  }
  // Kernels between those that were found and long ones may be dearer than both.
  const Partition whole = Whole(atoms, pricer);
  const Partition by_kind = ByKind(atoms, pricer);
  const bool starts = !by_kind.parts.empty() && by_kind.cost_ps < partition.cost_ps;
  take(merged(starts ? by_kind : partition));
  take(whole);
}

}  // namespace retrograd
