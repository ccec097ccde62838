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
    while (merged) {
      merged = false;
      for (size_t i = 0; i < atoms_.size(); ++i) {
        while (priced_ops_ < options_.max_priced_ops && TryBestMerge(owner_[i])) merged = true;
      }
    }
    return Result();
  }

 private:
  // Search bound: where hundreds of atoms read parts of one tensor, each pair may be merged.
  static constexpr size_t kMostPartners = 8;
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

  // The groups that a kernel of g may be merged with, ascending.
  std::vector<int> PartnersOf(int g) const {
    std::vector<int> partners;
    for (int a : groups_[g].atoms) {
      for (int n : atoms_[a].neighbours) {
        if (owner_[n] != g) partners.push_back(owner_[n]);
      }
    }
    std::sort(partners.begin(), partners.end());
    partners.erase(std::unique(partners.begin(), partners.end()), partners.end());
    std::erase_if(partners, [&](int h) {
      return groups_[g].ops + groups_[h].ops > options_.max_ops || AreSeparated(g, h) ||
             refused_.contains(PairOf(g, h)) || MakesCycle(g, h);
    });
    if (partners.size() > kMostPartners) KeepLikeliest(g, partners);
    return partners;
  }

  // Those whose merges save most bytes; among equals the nearest.
  void KeepLikeliest(int g, std::vector<int>& partners) const {
    std::vector<std::tuple<int64_t, int, int>> likeliest;  // what is left at least, distance, group
    for (int h : partners) {
      const GroupOps ops = OpsOfAtoms(atoms_, AtomsOf(g, h));
      const int64_t left_ps = pricer_.LeastPsOfAll(ops.ops) -
                              pricer_.LeastPsOfAll(OpsOfAtoms(atoms_, groups_[h].atoms).ops);
      likeliest.emplace_back(left_ps, std::abs(h - g), h);
    }
    std::nth_element(likeliest.begin(), likeliest.begin() + kMostPartners, likeliest.end());
    likeliest.resize(kMostPartners);
    partners.clear();
    for (const auto& [left_ps, distance, h] : likeliest) partners.push_back(h);
    std::sort(partners.begin(), partners.end());
  }

  std::vector<int> AtomsOf(int g, int h) const {
    std::vector<int> both;
    std::merge(groups_[g].atoms.begin(), groups_[g].atoms.end(), groups_[h].atoms.begin(),
               groups_[h].atoms.end(), std::back_inserter(both));
    return both;
  }

  // Two groups as they are: a group grows under its number.
  std::tuple<int, int, size_t, size_t> PairOf(int g, int h) const {
    return {std::min(g, h), std::max(g, h), groups_[g].atoms.size(), groups_[h].atoms.size()};
  }

  bool TryBestMerge(int g) {
    int best = -1;
    int64_t best_gain = kAnyGain;
    Group merged;
    for (int h : PartnersOf(g)) {
      Group both{.atoms = AtomsOf(g, h), .ops = groups_[g].ops + groups_[h].ops};
      priced_ops_ += both.ops;
      both.price = pricer_.Evaluate(OpsOfAtoms(atoms_, both.atoms));
      const int64_t gain = !both.price.feasible ? kAnyGain - 1
                                                : groups_[g].Cost(pricer_) +
                                                      groups_[h].Cost(pricer_) - both.Cost(pricer_);
      if (gain < least_gain_) {
        refused_.insert(PairOf(g, h));
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
  int64_t priced_ops_ = 0;
};

}  // namespace

Partition MergeGreedily(const std::vector<Atom>& atoms, const GroupPricer& pricer,
                        const GreedyOptions& options, const Partition& start,
                        absl::Span<const Constraint> constraints) {
  return Merger(atoms, pricer, options, start, constraints).Run();
}

}  // namespace retrograd
