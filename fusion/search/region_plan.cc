#include "fusion/search/region_plan.h"

#include <algorithm>

#include "fusion/analysis/cheap_sources.h"
#include "fusion/kernel/build/build.h"
#include "fusion/search/join_kernels.h"
#include "fusion/search/recompute.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

bool Holds(const Atom& atom, NodeId id) {
  return std::binary_search(atom.ops.begin(), atom.ops.end(), id);
}

int Find(const std::vector<Atom>& atoms, NodeId id) {
  for (size_t a = 0; a < atoms.size(); ++a) {
    if (Holds(atoms[a], id)) return static_cast<int>(a);
  }
  return -1;
}

// The ops of the pairs that share an atom.
std::vector<NodeId> SharingAnAtom(const std::vector<Atom>& atoms,
                                  absl::Span<const PairChoice> pairs) {
  std::vector<NodeId> ops;
  for (const PairChoice& pair : pairs) {
    const int a = Find(atoms, pair.a), b = Find(atoms, pair.b);
    if (a >= 0 && a == b) ops.insert(ops.end(), {pair.a, pair.b});
  }
  std::sort(ops.begin(), ops.end());
  return ops;
}

std::vector<Constraint> ConstraintsOf(const std::vector<Atom>& atoms,
                                      absl::Span<const PairChoice> choices) {
  std::vector<Constraint> constraints;
  for (const PairChoice& choice : choices) {
    const Constraint c{
        .a = Find(atoms, choice.a), .b = Find(atoms, choice.b), .together = choice.together};
    RG_CHECK(c.a >= 0 && c.b >= 0);
    constraints.push_back(c);
  }
  return constraints;
}

std::vector<Region> RunsOf(const Region& region) {
  std::vector<Region> runs;
  auto begin = region.ops.begin();
  for (NodeId next : region.later_runs) {
    const auto end = std::lower_bound(begin, region.ops.end(), next);
    runs.push_back({.ops = {begin, end}});
    begin = end;
  }
  runs.push_back({.ops = {begin, region.ops.end()}});
  return runs;
}

// Other atoms of the same ops as kernels that are like those of a plan: an atom goes where the plan
// makes its result, one whose result the plan recomputes stands alone.
std::vector<AtomMask> SetsLike(const RegionPlan& plan, const std::vector<Atom>& atoms) {
  std::vector<AtomMask> sets(plan.partition.parts.size(), 0);
  for (size_t a = 0; a < atoms.size(); ++a) {
    const NodeId result = atoms[a].ops.back();
    const auto makes = [&](const Partition::Part& part) {
      return std::any_of(part.atoms.begin(), part.atoms.end(),
                         [&](int atom) { return Holds(plan.atoms[atom], result); });
    };
    const auto at = std::find_if(plan.partition.parts.begin(), plan.partition.parts.end(), makes);
    if (at == plan.partition.parts.end()) {
      sets.push_back(Bit(static_cast<int>(a)));
    } else {
      sets[at - plan.partition.parts.begin()] |= Bit(static_cast<int>(a));
    }
  }
  std::erase(sets, AtomMask{0});
  return sets;
}

// The plan of a run behind those of the runs before it.
void Append(RegionPlan run, RegionPlan& plan) {
  const int first = static_cast<int>(plan.atoms.size());
  for (Atom& atom : run.atoms) plan.atoms.push_back(std::move(atom));
  for (Partition::Part& part : run.partition.parts) {
    for (int& atom : part.atoms) atom += first;
    plan.partition.parts.push_back(std::move(part));
  }
  plan.partition.cost_ps += run.partition.cost_ps;
}

// Ops, ascending, of whose atoms a widened copy is read: contracted into a cast of floats that
// others read. Masks are as cheap to make as to store.
std::vector<NodeId> WidenedForOthers(absl::Span<const Atom> atoms, const GroupPricer& pricer) {
  const BackwardGraph& g = pricer.graph();
  const Consumers& consumers = pricer.consumers();
  const FreeReads free = FreeReadsOf(pricer.device());
  std::vector<NodeId> widened;
  for (const Atom& atom : atoms) {
    const auto here = [&](NodeId id) {
      return std::binary_search(atom.ops.begin(), atom.ops.end(), id);
    };
    for (const NodeId cast : atom.ops) {
      if (!IsWideningCast(g, cast, free) || consumers.is_output(cast)) continue;
      const NodeId made = BehindViews(g, g.operands(cast)[0]).node;
      if (!here(made) || consumers.is_output(made) || consumers.of(made).size() != 1 ||
          !IsFloat(g.type(made).dtype)) {
        continue;
      }
      const auto& readers = consumers.of(cast);
      if (!std::all_of(readers.begin(), readers.end(), here)) widened.push_back(made);
    }
  }
  std::sort(widened.begin(), widened.end());
  return widened;
}

}  // namespace

RegionPlanner::RegionPlanner(const Region& region, const GroupPricer& pricer,
                             const RegionOptions& options, absl::Span<const PairChoice> pairs)
    : region_(region), pricer_(pricer), book_(pricer), options_(options) {
  plain_.atoms = FindAtoms(region, pricer, options.contract, options.split);
  std::vector<NodeId> split = SharingAnAtom(plain_.atoms, pairs);
  if (!split.empty()) {
    split.insert(split.end(), options.split.begin(), options.split.end());
    std::sort(split.begin(), split.end());
    plain_.atoms = FindAtoms(region, pricer, options.contract, split);
  }
  Furnish(plain_);
  for (const PairChoice& pair : pairs) {
    kept_.push_back(AtomOf(pair.a));
    kept_.push_back(AtomOf(pair.b));
  }
}

void RegionPlanner::Furnish(Workplace& workplace) {
  workplace.search = std::make_unique<RegionSearch>(workplace.atoms, book_, options_.search);
}

int RegionPlanner::AtomOf(NodeId id) const {
  const int atom = Find(plain_.atoms, id);
  RG_CHECK(atom >= 0);
  return atom;
}

// To store a cast's operand in place of its wider result may cost less, but an op and its cast are
// recomputed together only as one atom: both are tried.
RegionPlan RegionPlanner::Solve(absl::Span<const PairChoice> choices) {
  RegionPlan plan = SolveContracted(choices);
  const bool free = choices.empty() && options_.fuse && options_.contract && options_.split.empty();
  if (!free || InRuns() || options_.search.random_seed != 0) return plan;
  RegionOptions apart = options_;
  apart.split = WidenedForOthers(plain_.atoms, pricer_);
  if (apart.split.empty()) return plan;
  RegionPlan other = RegionPlanner(region_, pricer_, apart).SolveContracted({});
  const bool better =
      !other.partition.parts.empty() && other.partition.cost_ps < plan.partition.cost_ps;
  return better ? std::move(other) : std::move(plan);
}

RegionPlan RegionPlanner::SolveContracted(absl::Span<const PairChoice> choices) {
  RegionPlan plan{.atoms = plain_.atoms};
  if (!options_.fuse) {
    plan.partition = SinglesOf(plain_.atoms, pricer_);
    return plan;
  }
  if (choices.empty() && InRuns()) return SolveRuns();
  plan.partition =
      choices.empty() ? Free() : plain_.search->SolveWith(ConstraintsOf(plain_.atoms, choices));
  const bool found = plain_.search->searched() && !plan.partition.parts.empty();
  if (options_.recompute && found && options_.search.random_seed == 0)
    TryRecomputing(choices, plan);
  if (options_.search.join)
    JoinKernels(plan.atoms, pricer_, options_.search.limits.max_ops,
                ConstraintsOf(plan.atoms, choices), plan.partition);
  return plan;
}

bool RegionPlanner::InRuns() const {
  return !region_.later_runs.empty() && options_.search.random_seed == 0 &&
         options_.search.merge == CombineWhere::kItPays;
}

RegionPlan RegionPlanner::SolveRuns() const {
  RegionPlan plan;
  for (const Region& run : RunsOf(region_)) {
    RegionPlan solved = RegionPlanner(run, pricer_, options_).Solve();
    if (solved.partition.parts.empty()) return {};
    Append(std::move(solved), plan);
  }
  ConnectAtoms(pricer_, plan.atoms);
  if (options_.search.join) {
    JoinKernels(plan.atoms, pricer_, options_.search.limits.max_ops, {}, plan.partition);
  }
  return plan;
}

const Partition& RegionPlanner::Free() {
  if (!free_) free_ = plain_.search->Solve();
  return *free_;
}

void RegionPlanner::TryRecomputing(absl::Span<const PairChoice> choices, RegionPlan& best) {
  if (choices.empty()) return Climb(best);
  if (!tried_) {
    RegionPlan free{.atoms = plain_.atoms, .partition = Free()};
    Climb(free);
  }
  std::vector<int> keep;
  for (const PairChoice& choice : choices) {
    keep.push_back(AtomOf(choice.a));
    keep.push_back(AtomOf(choice.b));
  }
  // The sets that the free search tried and no other, so that no choice finds a plan that it
  // missed.
  for (const std::vector<int>& producers : *tried_) {
    const bool kept = std::any_of(producers.begin(), producers.end(), [&](int a) {
      return std::find(keep.begin(), keep.end(), a) != keep.end();
    });
    if (!kept) TryRecomputing(producers, choices, best);
  }
}

// What is recomputed if this producer is, too: it alone, or with the one atom that reads it, and
// the one that reads that. All must be among `candidates`. Ascending; empty: to recompute it is no
// plan of its own.
std::vector<int> RegionPlanner::AlsoRecomputing(const std::vector<int>& chosen, int producer,
                                                const std::vector<int>& candidates) const {
  std::vector<int> producers = chosen;
  for (std::optional<int> next = producer;
       next && !std::binary_search(chosen.begin(), chosen.end(), *next);
       next = OnlyReader(plain_.atoms, *next, pricer_)) {
    if (std::find(candidates.begin(), candidates.end(), *next) == candidates.end()) return {};
    producers.push_back(*next);
  }
  std::sort(producers.begin(), producers.end());
  return producers;
}

// Adds one producer after the other to those that are recomputed, as long as one makes the plan
// cheaper: one that does not pay alone may pay beside another.
void RegionPlanner::Climb(RegionPlan& best) {
  tried_.emplace();
  std::vector<int> left;
  for (int a : RecomputeCandidates(plain_.atoms, Free(), pricer_)) {
    if (std::find(kept_.begin(), kept_.end(), a) == kept_.end()) left.push_back(a);
  }
  std::vector<int> chosen;
  for (bool better = true; better;) {
    better = false;
    for (size_t i = 0; i < left.size();) {
      std::vector<int> producers = AlsoRecomputing(chosen, left[i], left);
      if (Tried(producers) || !TryRecomputing(tried_->emplace_back(producers), {}, best)) {
        ++i;
        continue;
      }
      chosen = std::move(producers);
      std::erase_if(left,
                    [&](int a) { return std::binary_search(chosen.begin(), chosen.end(), a); });
      i = 0;
      better = true;
    }
  }
}

bool RegionPlanner::TryRecomputing(const std::vector<int>& producers,
                                   absl::Span<const PairChoice> choices, RegionPlan& best) {
  Workplace& workplace = Recomputing(producers);
  if (!workplace.search->searched()) return false;  // it is, where the atoms were no fewer
  Partition partition;
  if (best.partition.exact) {
    partition =
        workplace.search->SolveWith(ConstraintsOf(workplace.atoms, choices), best.partition.cost_ps,
                                    ReadersToPart(producers, workplace.atoms));
  }
  if (!partition.exact && partition.parts.empty() && choices.empty()) {
    partition =
        workplace.search->ImproveFrom(SetsLike(best, workplace.atoms), best.partition.cost_ps);
  }
  if (partition.parts.empty()) {
    best.partition.exact = best.partition.exact && partition.exact;
    return false;
  }
  best = {.atoms = workplace.atoms, .partition = std::move(partition)};
  return true;
}

bool RegionPlanner::Tried(const std::vector<int>& producers) const {
  return producers.empty() || std::find(tried_->begin(), tried_->end(), producers) != tried_->end();
}

// Where all readers of a producer share a kernel and nothing else reads it, that kernel makes it
// once: a plan that does not recompute it. Such plans were looked at, if the other producers were
// tried. With one reader alone they cost a margin more: its kernel joins no atoms.
std::vector<AtomMask> RegionPlanner::ReadersToPart(const std::vector<int>& producers,
                                                   const std::vector<Atom>& atoms) const {
  std::vector<AtomMask> separated;
  for (int producer : producers) {
    std::vector<int> others = producers;
    std::erase(others, producer);
    const NodeId result = plain_.atoms[producer].ops.back();
    if (!Tried(others) || Find(atoms, result) >= 0) continue;
    AtomMask readers = 0;
    for (size_t a = 0; a < atoms.size(); ++a) {
      const std::vector<NodeId>& shared = atoms[a].shared;
      if (std::binary_search(shared.begin(), shared.end(), result))
        readers |= Bit(static_cast<int>(a));
    }
    if ((readers & (readers - 1)) != 0) separated.push_back(readers);
  }
  return separated;
}

RegionPlanner::Workplace& RegionPlanner::Recomputing(const std::vector<int>& producers) {
  auto [at, added] = recomputing_.try_emplace(producers);
  if (added) {
    at->second.atoms = Recomputed(plain_.atoms, producers, pricer_);
    Furnish(at->second);
  }
  return at->second;
}

GroupPrice RegionPlanner::SmallestTogether(NodeId a, NodeId b) {
  return plain_.search->SmallestTogether(AtomOf(a), AtomOf(b));
}

}  // namespace retrograd
