#include "fusion/search/exact_search.h"

#include <algorithm>
#include <queue>

#include "absl/strings/str_cat.h"
#include "fusion/analysis/barrier_depths.h"
#include "fusion/cost/kernel_cost.h"

namespace retrograd {

// One solve.
class ExactSearch::Run {
 public:
  Run(ExactSearch& search, absl::Span<const Constraint> constraints, int64_t below,
      absl::Span<const AtomMask> separated)
      : s_(search), below_(below), separated_(separated.begin(), separated.end()) {
    for (const Constraint& c : constraints) {
      (c.together ? joined_ : separated_).push_back(Bit(c.a) | Bit(c.b));
    }
  }

  Partition Solve() {
    const AtomMask all = s_.masks_.all();
    Enter(0, 0, 0);
    while (!open_.empty()) {
      const Entry e = open_.top();
      open_.pop();
      if (e.set == 0) {
        if (e.cost > states_.at(e.done).cost) continue;  // found again, cheaper
        if (e.done == all) return Result();
        if (!Expand(e.done, e.cost)) return {};
      } else {
        Price(e);
        if (s_.work() > most_work_) return {};
      }
    }
    return {.exact = true};
  }

 private:
  struct State {
    int64_t cost = 0;
    AtomMask from = 0;
    bool expanded = false;
  };
  // A state to expand (set == 0) or a step from it to be priced.
  struct Entry {
    int64_t bound = 0;  // no plan through it costs less
    AtomMask done = 0, set = 0;
    int64_t cost = 0;  // of `done`
    // Cheapest first; then what is nearer to the end; then by mask, the same in every process.
    bool operator<(const Entry& other) const {
      const int mine = std::popcount(done | set), theirs = std::popcount(other.done | other.set);
      return std::tuple(other.bound, mine, other.done, other.set) <
             std::tuple(bound, theirs, done, set);
    }
  };

  // Of one kernel.
  int64_t LeastOf(AtomMask set) {
    auto [least, added] = least_.Add(set);
    if (added) least = s_.masks_.LeastPs(set);
    return least;
  }

  // ExactSearch::LeastCost.
  int64_t LeastTogether(AtomMask set) {
    const int64_t least = LeastOf(set);
    return (set & (set - 1)) == 0 ? least : least + s_.pricer_.Margin(least);
  }

  // Of any kernels: one of several atoms pays the margin, several are launched.
  int64_t LeastOfAll(AtomMask set) {
    if (set == 0) return 0;
    auto [least, added] = least_of_all_.Add(set);
    if (!added) return least;
    least = s_.masks_.LeastPsOfAll(set);
    if ((set & (set - 1)) != 0 && (set & s_.calls_) == 0) {
      least += std::min(s_.pricer_.Margin(least), LeastKernelPs(s_.pricer_.device()));
    }
    return least;
  }

  void Enter(AtomMask done, int64_t cost, AtomMask from) {
    auto [at, added] = states_.try_emplace(done, State{.cost = cost, .from = from});
    if (!added) {
      if (at->second.cost <= cost) return;
      at->second = {.cost = cost, .from = from};
    }
    const int64_t bound = cost + LeastOfAll(s_.masks_.all() & ~done);
    if (bound < below_) open_.push({.bound = bound, .done = done, .set = 0, .cost = cost});
  }

  // Enters every step from the state: connected sets that need nothing undone outside themselves,
  // grown from one atom by a neighbour at a time with the undone atoms that it follows from.
  bool Expand(AtomMask done, int64_t cost) {
    if (++expanded_ > s_.limits_.max_downsets) return false;
    const RegionMasks& m = s_.masks_;
    const AtomMask left = m.all() & ~done;
    seen_.Clear();
    stack_.clear();
    auto push = [&](AtomMask set) {
      if (seen_.Add(set).second && !Separated(set) && !m.Conflict(set)) stack_.push_back(set);
    };
    ForEachBit(left, [&](int i) {
      if ((m.predecessors(i) & left) == 0) push(Bit(i));
    });
    const int64_t most_steps =
        std::min(s_.limits_.max_steps, steps_ + s_.limits_.max_steps_of_state);
    while (!stack_.empty()) {
      if (++steps_ > most_steps) return false;
      const AtomMask set = stack_.back();
      stack_.pop_back();
      AtomMask rim = 0;
      ForEachBit(set, [&](int i) { rim |= m.neighbours(i); });
      ForEachBit(rim & left & ~set, [&](int i) { push(set | Bit(i) | (m.ancestors(i) & left)); });
      if (!JoinsWhole(set) || !m.MayBeEpilogues(set)) continue;
      if (const GroupPrice** priced = s_.prices_.Find(set)) {
        if (*priced != nullptr && (*priced)->feasible) {
          Enter(done | set, cost + s_.pricer_.Cost(**priced, (set & (set - 1)) != 0), done);
        }
        continue;
      }
      const int64_t others = cost + LeastOfAll(left & ~set);
      if (others >= below_) continue;
      const int64_t bound = others + LeastTogether(set);
      if (bound < below_) open_.push({.bound = bound, .done = done, .set = set, .cost = cost});
    }
    return true;
  }

  void Price(const Entry& e) {
    if (e.cost > states_.at(e.done).cost) return;
    const AtomMask next = e.done | e.set;
    auto known = states_.find(next);
    if (known != states_.end() && known->second.cost <= e.cost + LeastTogether(e.set)) return;
    if (!s_.MayShareKernel(e.set)) return;
    const GroupPrice& price = s_.PriceOf(e.set);
    if (!price.feasible) return;
    Enter(next, e.cost + s_.pricer_.Cost(price, (e.set & (e.set - 1)) != 0), e.done);
  }

  // Holds whole what must be separated; then so does whatever grows from it.
  bool Separated(AtomMask set) const {
    return std::any_of(separated_.begin(), separated_.end(),
                       [&](AtomMask atoms) { return (set & atoms) == atoms; });
  }

  bool JoinsWhole(AtomMask set) const {
    return std::all_of(joined_.begin(), joined_.end(), [&](AtomMask atoms) {
      return (set & atoms) == 0 || (set & atoms) == atoms;
    });
  }

  Partition Result() {
    std::vector<AtomMask> sets;
    for (AtomMask at = s_.masks_.all(); at != 0;) {
      const AtomMask from = states_.at(at).from;
      sets.push_back(at & ~from);
      at = from;
    }
    Partition out = s_.PartitionOf({sets.rbegin(), sets.rend()});
    out.exact = true;
    return out;
  }

  ExactSearch& s_;
  const int64_t below_;
  std::vector<AtomMask> separated_, joined_;
  const int64_t most_work_ = s_.work() + s_.limits_.max_work;
  absl::flat_hash_map<AtomMask, State> states_;
  WordTable<int64_t> least_, least_of_all_;
  std::priority_queue<Entry> open_;
  struct Seen {};
  WordTable<Seen> seen_;  // from the state that is expanded
  std::vector<AtomMask> stack_;
  int64_t steps_ = 0, expanded_ = 0;
};

ExactSearch::ExactSearch(const std::vector<Atom>& atoms, PriceBook& book,
                         const SearchLimits& limits)
    : atoms_(atoms),
      book_(book),
      pricer_(book.pricer()),
      limits_(limits),
      masks_(atoms, book.pricer()) {
  for (size_t i = 0; i < atoms.size(); ++i) {
    const bool calls = std::any_of(atoms[i].ops.begin(), atoms[i].ops.end(),
                                   [&](NodeId id) { return IsBarrier(pricer_.graph(), id); });
    if (calls) calls_ |= Bit(static_cast<int>(i));
  }
}

Partition ExactSearch::Solve(absl::Span<const Constraint> constraints, int64_t below,
                             absl::Span<const AtomMask> separated) {
  return Run(*this, constraints, below, separated).Solve();
}

const GroupPrice& ExactSearch::PriceOf(AtomMask set) {
  const GroupPrice*& price = prices_.Add(set).first;
  if (price != nullptr) return *price;
  GroupOps group = OpsOfAtoms(atoms_, AtomsOf(set));
  const auto ops = static_cast<int64_t>(group.ops.size());
  price = ops > limits_.max_ops && (set & (set - 1)) != 0 ? &TooLarge(ops)
                                                          : &book_.Of(std::move(group));
  work_ += price->work;
  return *price;
}

int64_t ExactSearch::CostOf(AtomMask set) {
  if (!MayShareKernel(set)) return kNoBound;
  const GroupPrice& price = PriceOf(set);
  return price.feasible ? pricer_.Cost(price, (set & (set - 1)) != 0) : kNoBound;
}

int64_t ExactSearch::LeastCost(AtomMask set) const {
  const int64_t least = masks_.LeastPs(set);
  return (set & (set - 1)) == 0 ? least : least + pricer_.Margin(least);
}

Partition ExactSearch::PartitionOf(std::vector<AtomMask> sets) {
  Partition partition;
  AtomMask done = 0;
  while (!sets.empty()) {
    const auto ready = std::find_if(sets.begin(), sets.end(), [&](AtomMask set) {
      return (masks_.PredecessorsOf(set) & ~set & ~done) == 0;
    });
    if (ready == sets.end()) return {};
    done |= *ready;
    AddPart(AtomsOf(*ready), PriceOf(*ready), pricer_, partition);
    sets.erase(ready);
  }
  return partition;
}

const GroupPrice& ExactSearch::TooLarge(int64_t ops) {
  GroupPrice& price = too_large_[ops];
  price.limit = "ops";
  price.reason =
      absl::StrCat(ops, " ops in one kernel, at most ", limits_.max_ops, " are looked at");
  return price;
}

bool ExactSearch::MayShareKernel(AtomMask set) {
  if ((set & (set - 1)) == 0) return true;
  if (masks_.Conflict(set) || !masks_.MayBeEpilogues(set)) return false;
  if (const GroupPrice** known = prices_.Find(set)) return *known != nullptr;
  if (!links_) links_.emplace(atoms_, pricer_);
  if (links_->MayShareKernel(set)) return true;
  prices_.Add(set);
  return false;
}

std::vector<int> ExactSearch::AtomsOf(AtomMask set) const {
  std::vector<int> out;
  ForEachBit(set, [&](int i) { out.push_back(i); });
  return out;
}

}  // namespace retrograd
