#include "fusion/search/local_search.h"

#include <algorithm>
#include <array>
#include <utility>

namespace retrograd {
namespace {

class LocalSearch {
 public:
  LocalSearch(ExactSearch& search, std::vector<AtomMask> parts, int64_t max_work,
              absl::Span<const Constraint> constraints)
      : search_(search),
        masks_(search.masks()),
        parts_(std::move(parts)),
        most_work_(search.work() + max_work),
        constraints_(constraints) {}

  Partition Run() {
    for (AtomMask part : parts_) {
      if (search_.CostOf(part) == ExactSearch::kNoBound) return {};
    }
    for (bool better = true; better && !Exhausted();) {
      better = false;
      for (int atom = 0; atom < masks_.size(); ++atom) {
        while (!Exhausted() && MoveAt(atom)) better = true;
      }
      better = better || MergeThree();
    }
    return search_.PartitionOf(std::move(parts_));
  }

 private:
  bool Exhausted() const { return search_.work() >= most_work_; }

  size_t PartOf(int atom) const {
    const auto at = std::find_if(parts_.begin(), parts_.end(),
                                 [&](AtomMask part) { return (part & Bit(atom)) != 0; });
    return at - parts_.begin();
  }

  // Makes a move of a piece around this atom.
  bool MoveAt(int atom) {
    const size_t from = PartOf(atom);
    const AtomMask part = parts_[from];
    for (AtomMask piece : PiecesAround(atom, part)) {
      if (piece == 0) continue;
      AtomMask rim = 0;
      ForEachBit(piece, [&](int i) { rim |= masks_.neighbours(i); });
      for (size_t to = 0; to < parts_.size(); ++to) {
        if (to != from && (parts_[to] & rim) != 0 && Move(piece, from, to)) return true;
      }
      if (piece != part && Move(piece, from, parts_.size())) return true;
    }
    return false;
  }

  std::array<AtomMask, 6> PiecesAround(int atom, AtomMask part) const {
    const AtomMask before = masks_.ancestors(atom) & part;
    AtomMask with_later = Bit(atom);
    ForEachBit(part, [&](int i) {
      if ((masks_.ancestors(i) & Bit(atom)) != 0) with_later |= Bit(i);
    });
    return {Bit(atom), with_later, before | Bit(atom), part, before, part & ~before};
  }

  // Moves the piece to part `to`, the one behind the last being new, if that pays.
  bool Move(AtomMask piece, size_t from, size_t to) {
    const AtomMask target = to < parts_.size() ? parts_[to] : 0;
    const AtomMask rest = parts_[from] & ~piece, grown = target | piece;
    const int64_t cost = search_.CostOf(parts_[from]) + Cost(target);
    const int64_t least_rest = rest == 0 ? 0 : search_.LeastCost(rest);
    if (search_.LeastCost(grown) + least_rest >= cost) return false;
    if (!Obeys(grown) || !Obeys(rest) || MakesCycle(from, to, rest, grown)) return false;
    const int64_t cost_grown = Cost(grown);
    if (cost_grown + least_rest >= cost || cost_grown + Cost(rest) >= cost) return false;
    if (to < parts_.size()) {
      parts_[to] = grown;
    } else {
      parts_.push_back(grown);
    }
    parts_[from] = rest;
    if (rest == 0) parts_.erase(parts_.begin() + static_cast<std::ptrdiff_t>(from));
    return true;
  }

  // Three kernels become one, where no two do.
  bool MergeThree() {
    for (size_t a = 0; a < parts_.size(); ++a) {
      for (size_t b = a + 1; b < parts_.size(); ++b) {
        for (size_t c = b + 1; c < parts_.size() && !Exhausted(); ++c) {
          if (MergeThree(a, b, c)) return true;
        }
      }
    }
    return false;
  }

  bool MergeThree(size_t a, size_t b, size_t c) {
    const AtomMask all = parts_[a] | parts_[b] | parts_[c];
    if ((masks_.Closure(all) & ~all) != 0) return false;
    const int64_t cost = Cost(parts_[a]) + Cost(parts_[b]) + Cost(parts_[c]);
    if (search_.LeastCost(all) >= cost || !Obeys(all) || Cost(all) >= cost) return false;
    std::vector<AtomMask> merged = {all};
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (i != a && i != b && i != c) merged.push_back(parts_[i]);
    }
    if (HasCycle(merged)) return false;
    parts_ = std::move(merged);
    return true;
  }

  int64_t Cost(AtomMask set) { return set == 0 ? 0 : search_.CostOf(set); }

  bool Obeys(AtomMask set) const {
    return std::all_of(constraints_.begin(), constraints_.end(), [&](const Constraint& c) {
      const bool a = (set & Bit(c.a)) != 0, b = (set & Bit(c.b)) != 0;
      return c.together ? a == b : !(a && b);
    });
  }

  bool MakesCycle(size_t from, size_t to, AtomMask rest, AtomMask grown) const {
    std::vector<AtomMask> moved = {rest, grown};
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (i != from && i != to) moved.push_back(parts_[i]);
    }
    return HasCycle(std::move(moved));
  }

  // Whether some set needs another and is needed by it.
  bool HasCycle(std::vector<AtomMask> left) const {
    AtomMask done = 0;
    for (bool progress = true; progress;) {
      const size_t before = left.size();
      std::erase_if(left, [&](AtomMask set) {
        const bool ready = (masks_.PredecessorsOf(set) & ~set & ~done) == 0;
        if (ready) done |= set;
        return ready;
      });
      progress = left.size() < before;
    }
    return !left.empty();
  }

  ExactSearch& search_;
  const RegionMasks& masks_;
  std::vector<AtomMask> parts_;
  const int64_t most_work_;
  const absl::Span<const Constraint> constraints_;
};

}  // namespace

Partition ImproveLocally(ExactSearch& search, std::vector<AtomMask> parts, int64_t max_work,
                         absl::Span<const Constraint> constraints) {
  return LocalSearch(search, std::move(parts), max_work, constraints).Run();
}

}  // namespace retrograd
