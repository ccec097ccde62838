#include "fusion/search/greedy_search.h"

#include <algorithm>
#include <limits>

#include "absl/container/flat_hash_set.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

// Greedy merging of neighbouring groups, best gain first. Groups are numbered by their first atom;
// a merge is legal if no path leaves the pair and comes back.
class Merger {
 public:
  Merger(const std::vector<Atom>& atoms, const GroupPricer& pricer, const GreedyOptions& options,
         const Partition& start, absl::Span<const Constraint> constraints)
      : atoms_(atoms),
        pricer_(pricer),
        options_(options),
        constraints_(constraints),
        least_gain_(options.where == CombineWhere::kItPays ? 1 : kAnyGain),
        groups_(atoms.size()),
        owner_(atoms.size()) {
    for (const Partition::Part& part : start.parts) AddGroup(part.atoms);
    for (int i = 0; start.parts.empty() && i < static_cast<int>(atoms.size()); ++i) AddGroup({i});
    successors_.resize(atoms.size());
    for (size_t i = 0; i < atoms.size(); ++i) {
      for (int p : atoms[i].predecessors) successors_[p].push_back(static_cast<int>(i));
    }
  }

  Partition Run() {
    bool merged = true;
    while (merged && prices_ < options_.max_prices) {
      merged = false;
      for (size_t i = 0; i < atoms_.size(); ++i) {
        while (TryBestMerge(owner_[i])) merged = true;
      }
    }
    return Result();
  }

 private:
  static constexpr int64_t kAnyGain = std::numeric_limits<int64_t>::min() / 2;  // less than any

  struct Group {
    std::vector<int> atoms;  // ascending; empty once merged into another
    GroupPrice price;
    int64_t ops = 0;
    int64_t Cost(const GroupPricer& pricer) const { return pricer.Cost(price, atoms.size() > 1); }
  };

  void AddGroup(std::vector<int> atoms) {
    const int g = atoms[0];
    for (int a : atoms) owner_[a] = g;
    const GroupOps ops = OpsOfAtoms(atoms_, atoms);
    groups_[g] = {.atoms = std::move(atoms),
                  .price = pricer_.Evaluate(ops),
                  .ops = static_cast<int64_t>(ops.ops.size())};
  }

  // Whether the atoms of a constraint must not come together by a merge.
  bool AreSeparated(int g, int h) const {
    return std::any_of(constraints_.begin(), constraints_.end(), [&](const Constraint& c) {
      const std::pair pair(owner_[c.a], owner_[c.b]);
      return !c.together && (pair == std::pair(g, h) || pair == std::pair(h, g));
    });
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
    int64_t best_gain = kAnyGain;
    Group merged;
    for (int h : partners) {
      const auto pair = std::tuple(std::min(g, h), std::max(g, h), groups_[g].atoms.size(),
                                   groups_[h].atoms.size());
      if (groups_[g].ops + groups_[h].ops > options_.max_ops || AreSeparated(g, h)) continue;
      if (refused_.contains(pair) || MakesCycle(g, h)) continue;
      ++prices_;
      Group both{.ops = groups_[g].ops + groups_[h].ops};
      std::merge(groups_[g].atoms.begin(), groups_[g].atoms.end(), groups_[h].atoms.begin(),
                 groups_[h].atoms.end(), std::back_inserter(both.atoms));
      both.price = pricer_.Evaluate(OpsOfAtoms(atoms_, both.atoms));
      const int64_t gain = !both.price.feasible ? kAnyGain - 1
                                                : groups_[g].Cost(pricer_) +
                                                      groups_[h].Cost(pricer_) - both.Cost(pricer_);
      if (gain < least_gain_) {
        refused_.insert(pair);
      } else if (best < 0 || gain > best_gain) {
        best = h, best_gain = gain, merged = std::move(both);
      }
    }
    if (best < 0) return false;
    for (int a : groups_[best].atoms) owner_[a] = g;
    groups_[g] = std::move(merged);
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
        AddPart(groups_[g].atoms, groups_[g].price, pricer_, out);
      }
      RG_CHECK(progress);
    }
    return out;
  }

  const std::vector<Atom>& atoms_;
  const GroupPricer& pricer_;
  const GreedyOptions options_;
  const absl::Span<const Constraint> constraints_;
  const int64_t least_gain_;
  std::vector<Group> groups_;
  std::vector<int> owner_;
  std::vector<std::vector<int>> successors_;
  absl::flat_hash_set<std::tuple<int, int, size_t, size_t>> refused_;
  int64_t prices_ = 0;
};

}  // namespace

Partition MergeGreedily(const std::vector<Atom>& atoms, const GroupPricer& pricer,
                        const GreedyOptions& options, const Partition& start,
                        absl::Span<const Constraint> constraints) {
  return Merger(atoms, pricer, options, start, constraints).Run();
}

}  // namespace retrograd
