#include "fusion/search/random_partition.h"

#include <algorithm>

namespace retrograd {
namespace {

constexpr int kMostGrowth = 8;  // atoms added to a kernel's first one

uint64_t NextRandom(uint64_t& state) {  // splitmix64
  uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

class Drawer {
 public:
  Drawer(const std::vector<Atom>& atoms, const GroupPricer& pricer, uint64_t seed)
      : atoms_(atoms), pricer_(pricer), state_(seed), taken_(atoms.size(), false) {
    for (NodeId id : atoms[0].ops) state_ += Index(id) * 7919;
  }

  Partition Run() {
    Partition out;
    for (size_t left = atoms_.size(); left > 0;) {
      std::vector<int> set = {Draw(Ready(AllAtoms()))};
      taken_[set[0]] = true;
      GroupPrice price = pricer_.Evaluate(OpsOfAtoms(atoms_, set));
      for (uint64_t grow = NextRandom(state_) % kMostGrowth; grow > 0 && Grow(set, price); --grow) {
      }
      left -= set.size();
      AddPart(std::move(set), price, pricer_, out);
    }
    return out;
  }

 private:
  bool Grow(std::vector<int>& set, GroupPrice& price) {
    std::vector<int> rim;
    for (int a : set)
      rim.insert(rim.end(), atoms_[a].neighbours.begin(), atoms_[a].neighbours.end());
    std::sort(rim.begin(), rim.end());
    rim.erase(std::unique(rim.begin(), rim.end()), rim.end());
    const std::vector<int> more = Ready(rim);
    if (more.empty()) return false;
    const int atom = Draw(more);
    std::vector<int> larger = set;
    larger.insert(std::upper_bound(larger.begin(), larger.end(), atom), atom);
    GroupPrice p = pricer_.Evaluate(OpsOfAtoms(atoms_, larger));
    if (!p.feasible) return true;
    taken_[atom] = true;
    set = std::move(larger);
    price = std::move(p);
    return true;
  }

  std::vector<int> AllAtoms() const {
    std::vector<int> all(atoms_.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
    return all;
  }

  // Those whose predecessors are all taken.
  std::vector<int> Ready(const std::vector<int>& among) const {
    std::vector<int> ready;
    for (int a : among) {
      const std::vector<int>& before = atoms_[a].predecessors;
      if (!taken_[a] &&
          std::all_of(before.begin(), before.end(), [&](int p) { return taken_[p]; })) {
        ready.push_back(a);
      }
    }
    return ready;
  }

  int Draw(const std::vector<int>& among) { return among[NextRandom(state_) % among.size()]; }

  const std::vector<Atom>& atoms_;
  const GroupPricer& pricer_;
  uint64_t state_;
  std::vector<bool> taken_;
};

}  // namespace

Partition RandomPartition(const std::vector<Atom>& atoms, const GroupPricer& pricer,
                          uint64_t seed) {
  return Drawer(atoms, pricer, seed).Run();
}

}  // namespace retrograd
