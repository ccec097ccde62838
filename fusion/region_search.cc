#include "fusion/region_search.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "absl/container/flat_hash_set.h"
#include "fusion/kernel/build.h"
#include "graph/status.h"

namespace retrograd {
namespace {

constexpr int64_t kInfeasible = std::numeric_limits<int64_t>::max() / 4;
// Groups tried from one region before the search gives up being exact.
constexpr int64_t kMaxSteps = 2'000'000;

uint64_t Bit(int i) { return uint64_t{1} << i; }

template <typename Fn>
void ForEachBit(uint64_t mask, Fn fn) {
  while (mask != 0) {
    fn(std::countr_zero(mask));
    mask &= mask - 1;
  }
}

std::vector<NodeId> Union(const std::vector<NodeId>& a, const std::vector<NodeId>& b) {
  std::vector<NodeId> out;
  std::merge(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(out));
  return out;
}

uint64_t NextRandom(uint64_t& state) {  // splitmix64
  uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Greedy merging of neighbouring groups, best gain first. Groups are numbered by their first atom;
// a merge is legal if no path leaves the pair and comes back.
class Merger {
 public:
  Merger(const std::vector<Atom>& atoms, const GroupPricer& pricer, const SearchOptions& options)
      : atoms_(atoms), pricer_(pricer), options_(options), groups_(atoms.size()) {
    for (size_t i = 0; i < atoms.size(); ++i) {
      owner_.push_back(static_cast<int>(i));
      groups_[i] = {.atoms = {static_cast<int>(i)}, .ops = atoms[i].ops, .price = {}};
      groups_[i].price = pricer_.Evaluate(atoms[i].ops);
    }
    successors_.resize(atoms.size());
    for (size_t i = 0; i < atoms.size(); ++i) {
      for (int p : atoms[i].predecessors) successors_[p].push_back(static_cast<int>(i));
    }
  }

  Partition Run() {
    bool merged = true;
    while (merged && evaluations_ < options_.max_evaluations) {
      merged = false;
      for (size_t i = 0; i < atoms_.size(); ++i) {
        while (TryBestMerge(owner_[i])) merged = true;
      }
    }
    return Result();
  }

 private:
  struct Group {
    std::vector<int> atoms;
    std::vector<NodeId> ops;
    GroupPrice price;
  };

  int64_t Cost(const GroupPrice& p, size_t atoms) const {
    return p.ps + (atoms > 1 ? pricer_.Margin(p.ps) : 0);
  }

  bool TryBestMerge(int g) {
    std::vector<int> partners;
    for (int a : groups_[g].atoms) {
      for (int n : atoms_[a].neighbours) {
        if (owner_[n] != g) partners.push_back(owner_[n]);
      }
    }
    std::sort(partners.begin(), partners.end());
    partners.erase(std::unique(partners.begin(), partners.end()), partners.end());
    int best = -1;
    int64_t best_gain = 0;
    GroupPrice best_price;
    for (int h : partners) {
      if (refused_.contains({std::min(g, h), std::max(g, h), groups_[g].atoms.size(), groups_[h].atoms.size()})) continue;
      if (MakesCycle(g, h)) continue;
      ++evaluations_;
      GroupPrice p = pricer_.Evaluate(Union(groups_[g].ops, groups_[h].ops));
      const size_t together = groups_[g].atoms.size() + groups_[h].atoms.size();
      const int64_t gain = !p.feasible ? -1
                                       : Cost(groups_[g].price, groups_[g].atoms.size()) +
                                             Cost(groups_[h].price, groups_[h].atoms.size()) -
                                             Cost(p, together);
      if (gain <= 0) {
        refused_.insert({std::min(g, h), std::max(g, h), groups_[g].atoms.size(), groups_[h].atoms.size()});
      }
      if (gain > best_gain) best = h, best_gain = gain, best_price = p;
    }
    if (best < 0) return false;
    Group& into = groups_[g];
    into.ops = Union(into.ops, groups_[best].ops);
    for (int a : groups_[best].atoms) {
      into.atoms.push_back(a);
      owner_[a] = g;
    }
    std::sort(into.atoms.begin(), into.atoms.end());
    into.price = best_price;
    groups_[best] = {};
    return true;
  }

  // Whether a path g → elsewhere → h (or back) exists; paths run forward through atom numbers.
  bool MakesCycle(int g, int h) const { return PathAround(g, h) || PathAround(h, g); }

  bool PathAround(int from, int to) const {
    absl::flat_hash_set<int> seen;
    std::vector<int> stack;
    auto push = [&](int atom) {
      for (int s : successors_[atom]) {
        if (owner_[s] == from) continue;
        if (owner_[s] == to && owner_[atom] == from) continue;  // the direct edge is fine
        if (seen.insert(owner_[s]).second) stack.push_back(owner_[s]);
      }
    };
    for (int a : groups_[from].atoms) push(a);
    while (!stack.empty()) {
      const int g = stack.back();
      stack.pop_back();
      if (g == to) return true;
      for (int a : groups_[g].atoms) push(a);
    }
    return false;
  }

  Partition Result() const {
    // Kahn's algorithm over groups, smallest first atom first.
    Partition out;
    std::vector<bool> done(atoms_.size(), false);
    size_t left = 0;
    for (const Group& g : groups_) left += !g.atoms.empty();
    std::vector<bool> placed(groups_.size(), false);
    while (left > 0) {
      bool progress = false;
      for (size_t g = 0; g < groups_.size(); ++g) {
        if (groups_[g].atoms.empty() || placed[g]) continue;
        bool ready = true;
        for (int a : groups_[g].atoms) {
          for (int p : atoms_[a].predecessors) {
            ready = ready && (done[p] || owner_[p] == static_cast<int>(g));
          }
        }
        if (!ready) continue;
        placed[g] = progress = true;
        --left;
        for (int a : groups_[g].atoms) done[a] = true;
        out.parts.push_back({.atoms = groups_[g].atoms,
                             .schedule = groups_[g].price.schedule,
                             .ps = groups_[g].price.ps});
        out.cost_ps += Cost(groups_[g].price, groups_[g].atoms.size());
      }
      RG_CHECK(progress);
    }
    return out;
  }

  const std::vector<Atom>& atoms_;
  const GroupPricer& pricer_;
  SearchOptions options_;
  std::vector<Group> groups_;
  std::vector<int> owner_;
  std::vector<std::vector<int>> successors_;
  absl::flat_hash_set<std::tuple<int, int, size_t, size_t>> refused_;
  int64_t evaluations_ = 0;
};

}  // namespace

Partition MergeGreedily(const std::vector<Atom>& atoms, const GroupPricer& pricer,
                        const SearchOptions& options) {
  return Merger(atoms, pricer, options).Run();
}

RegionSearch::RegionSearch(const std::vector<Atom>& atoms, const GroupPricer& pricer,
                           const SearchOptions& options)
    : atoms_(atoms), pricer_(pricer), options_(options) {
  const int n = static_cast<int>(atoms.size());
  if (n > 64) return;
  predecessors_.resize(n);
  successors_.resize(n);
  neighbours_.resize(n);
  ancestors_.resize(n);
  descendants_.resize(n);
  for (int i = 0; i < n; ++i) {
    for (int p : atoms[i].predecessors) {
      predecessors_[i] |= Bit(p);
      successors_[p] |= Bit(i);
      ancestors_[i] |= Bit(p) | ancestors_[p];
    }
    for (int x : atoms[i].neighbours) neighbours_[i] |= Bit(x);
  }
  for (int i = n; i-- > 0;) {
    ForEachBit(successors_[i], [&](int s) { descendants_[i] |= Bit(s) | descendants_[s]; });
  }
}

std::vector<NodeId> RegionSearch::OpsOf(uint64_t set) const {
  std::vector<NodeId> ops;
  ForEachBit(set, [&](int i) {
    ops.insert(ops.end(), atoms_[i].ops.begin(), atoms_[i].ops.end());
  });
  std::sort(ops.begin(), ops.end());
  return ops;
}

const GroupPrice& RegionSearch::PriceOf(uint64_t set) {
  auto at = prices_.find(set);
  if (at == prices_.end()) {
    ++evaluations_;
    at = prices_.emplace(set, pricer_.Evaluate(OpsOf(set))).first;
  }
  return at->second;
}

int64_t RegionSearch::CostOf(uint64_t set) {
  const GroupPrice& p = PriceOf(set);
  if (!p.feasible) return kInfeasible;
  return p.ps + (std::popcount(set) > 1 ? pricer_.Margin(p.ps) : 0);
}

int64_t RegionSearch::LowerBoundOf(uint64_t set) {
  auto at = bounds_.find(set);
  if (at == bounds_.end()) at = bounds_.emplace(set, pricer_.LowerBound(OpsOf(set))).first;
  return at->second;
}

bool RegionSearch::Allowed(uint64_t set, const Constraint* c) const {
  if (c == nullptr) return true;
  const bool has_a = set & Bit(c->a), has_b = set & Bit(c->b);
  return c->together ? has_a == has_b : !(has_a && has_b);
}

uint64_t RegionSearch::Closure(uint64_t set) const {
  uint64_t above = 0, below = 0;
  ForEachBit(set, [&](int i) {
    above |= descendants_[i];
    below |= ancestors_[i];
  });
  return set | (above & below);
}

Partition RegionSearch::FromSets(std::vector<uint64_t> sets) {
  Partition out;
  for (uint64_t set : sets) {
    Partition::Part part;
    ForEachBit(set, [&](int i) { part.atoms.push_back(i); });
    const GroupPrice& p = PriceOf(set);
    part.schedule = p.schedule;
    part.ps = p.ps;
    out.cost_ps += CostOf(set);
    out.parts.push_back(std::move(part));
  }
  return out;
}

Partition RegionSearch::Exact(const Constraint* constraint, int64_t upper_bound) {
  struct State {
    int64_t cost;
    uint64_t from;
  };
  const int n = static_cast<int>(atoms_.size());
  const uint64_t all = n == 64 ? ~uint64_t{0} : Bit(n) - 1;
  absl::flat_hash_map<uint64_t, State> best;
  std::vector<std::vector<uint64_t>> by_size(n + 1);
  best[0] = {0, 0};
  by_size[0].push_back(0);
  bool complete = true;
  int64_t steps = 0;
  for (int size = 0; size < n && complete; ++size) {
    // Ascending masks: the same order in every process.
    std::sort(by_size[size].begin(), by_size[size].end());
    for (uint64_t done : by_size[size]) {
      const int64_t base = best[done].cost;
      if (base + LowerBoundOf(all & ~done) > upper_bound) continue;
      absl::flat_hash_set<uint64_t> seen;
      std::vector<uint64_t> stack;
      auto push = [&](uint64_t set) {
        if (seen.insert(set).second) stack.push_back(set);
      };
      // Connected sets that need nothing undone outside themselves: from one atom, a neighbour at
      // a time, each with the undone atoms that it follows from.
      for (int i = 0; i < n; ++i) {
        if (!(done & Bit(i)) && (predecessors_[i] & ~done) == 0) push(Bit(i));
      }
      while (!stack.empty()) {
        if (++steps > kMaxSteps || evaluations_ > options_.max_evaluations ||
            static_cast<int>(best.size()) > options_.max_downsets) {
          complete = false;
          break;
        }
        const uint64_t set = stack.back();
        stack.pop_back();
        const uint64_t next = done | set;
        uint64_t rim = 0;
        ForEachBit(set, [&](int i) { rim |= neighbours_[i]; });
        rim &= all & ~next;
        ForEachBit(rim, [&](int i) { push(set | Bit(i) | (ancestors_[i] & ~done)); });
        if (!Allowed(set, constraint)) continue;
        auto known = best.find(next);
        const int64_t rest = next == all ? 0 : LowerBoundOf(all & ~next);
        const int64_t bound = base + LowerBoundOf(set);
        if (bound + rest > upper_bound) continue;
        if (known != best.end() && bound >= known->second.cost) continue;
        const int64_t cost = CostOf(set);
        if (cost >= kInfeasible || base + cost + rest > upper_bound) continue;
        if (known == best.end()) {
          best[next] = {base + cost, done};
          by_size[std::popcount(next)].push_back(next);
        } else if (base + cost < known->second.cost) {
          known->second = {base + cost, done};
        }
      }
      if (!complete) break;
    }
  }
  if (!complete || !best.contains(all)) return {};
  std::vector<uint64_t> sets;
  for (uint64_t at = all; at != 0;) {
    const uint64_t from = best[at].from;
    sets.push_back(at & ~from);
    at = from;
  }
  std::reverse(sets.begin(), sets.end());
  Partition out = FromSets(std::move(sets));
  out.exact = true;
  return out;
}

Partition RegionSearch::RandomLegal() {
  uint64_t state = options_.random_seed;
  for (NodeId id : atoms_[0].ops) state += Index(id) * 7919;
  const int n = static_cast<int>(atoms_.size());
  if (n > 64) {
    Partition singles;
    for (int i = 0; i < n; ++i) {
      const GroupPrice p = pricer_.Evaluate(atoms_[i].ops);
      singles.parts.push_back({.atoms = {i}, .schedule = p.schedule, .ps = p.ps});
      singles.cost_ps += p.ps;
    }
    return singles;
  }
  const uint64_t all = n == 64 ? ~uint64_t{0} : Bit(n) - 1;
  std::vector<uint64_t> sets;
  uint64_t done = 0;
  while (done != all) {
    auto available = [&](uint64_t among, uint64_t have) {
      std::vector<int> out;
      ForEachBit(among, [&](int i) {
        if ((predecessors_[i] & ~have) == 0) out.push_back(i);
      });
      return out;
    };
    const std::vector<int> starts = available(all & ~done, done);
    uint64_t set = Bit(starts[NextRandom(state) % starts.size()]);
    const int wanted = static_cast<int>(NextRandom(state) % 8);
    for (int grow = 0; grow < wanted; ++grow) {
      uint64_t rim = 0;
      ForEachBit(set, [&](int i) { rim |= neighbours_[i]; });
      const std::vector<int> more = available(rim & all & ~done & ~set, done | set);
      if (more.empty()) break;
      const uint64_t larger = set | Bit(more[NextRandom(state) % more.size()]);
      if (PriceOf(larger).feasible) set = larger;
    }
    sets.push_back(set);
    done |= set;
  }
  return FromSets(std::move(sets));
}

Partition RegionSearch::Solve() {
  if (options_.random_seed != 0) return RandomLegal();
  Partition greedy = MergeGreedily(atoms_, pricer_, options_);
  const int n = static_cast<int>(atoms_.size());
  if (n == 1) {
    greedy.exact = true;
    return greedy;
  }
  if (n > std::min(options_.max_atoms, 64)) return greedy;
  Partition exact = Exact(nullptr, greedy.cost_ps);
  return exact.exact ? exact : greedy;
}

Partition RegionSearch::SolveWith(const Constraint& constraint) {
  if (static_cast<int>(atoms_.size()) > std::min(options_.max_atoms, 64)) return {};
  return Exact(&constraint, kInfeasible);
}

GroupPrice RegionSearch::SmallestTogether(int a, int b) {
  if (atoms_.size() > 64) return {};
  return PriceOf(Closure(Bit(a) | Bit(b)));
}

}  // namespace retrograd
