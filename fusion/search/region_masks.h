// A region of at most 64 atoms as bit masks, for the search to compute on.
#ifndef RETROGRAD_FUSION_SEARCH_REGION_MASKS_H_
#define RETROGRAD_FUSION_SEARCH_REGION_MASKS_H_

#include <bit>
#include <cstdint>
#include <vector>

#include "fusion/pricing/group_pricer.h"
#include "fusion/search/atoms.h"

namespace retrograd {

using AtomMask = uint64_t;  // bit i: atom i
inline constexpr int kMaxMaskedAtoms = 64;

constexpr AtomMask Bit(int i) { return AtomMask{1} << i; }
constexpr AtomMask LowBits(int n) { return n == 64 ? ~AtomMask{0} : Bit(n) - 1; }

template <typename Fn>
void ForEachBit(AtomMask mask, Fn fn) {
  for (; mask != 0; mask &= mask - 1) fn(std::countr_zero(mask));
}

class RegionMasks {
 public:
  RegionMasks(const std::vector<Atom>& atoms, const GroupPricer& pricer);

  int size() const { return static_cast<int>(predecessors_.size()); }
  AtomMask all() const { return LowBits(size()); }
  AtomMask predecessors(int i) const { return predecessors_[i]; }
  AtomMask ancestors(int i) const { return ancestors_[i]; }
  AtomMask neighbours(int i) const { return neighbours_[i]; }
  // Atoms that no kernel holds beside this one, whatever else it holds.
  AtomMask conflicts(int i) const { return conflicts_[i]; }

  // What any atom of the set reads, some of it perhaps in the set.
  AtomMask PredecessorsOf(AtomMask set) const;
  // The set with all atoms that lie on paths between its members.
  AtomMask Closure(AtomMask set) const;
  // False: no kernel computes these atoms, since an epilogue root is among them whose product is
  // read elsewhere, too, or beside which they are no epilogue: what the rules of
  // fusion/pricing/epilogue_price.h say of the set alone.
  bool MayBeEpilogues(AtomMask set) const;
  // The least bytes that a kernel of these atoms, or several, move; what an epilogue root moves is
  // not among them.
  MovedBytes LeastBytes(AtomMask set) const { return LeastBytes(set, set); }
  // The least that one kernel of these atoms takes, and that any number of kernels take together.
  int64_t LeastPs(AtomMask set) const;
  int64_t LeastPsOfAll(AtomMask set) const;
  // The atoms of the set that hang together with its first one. Nothing of it waits for the others.
  AtomMask FirstComponent(AtomMask set) const;

 private:
  // The same where any of these kernels may hold atoms of `beside`, too.
  MovedBytes LeastBytes(AtomMask set, AtomMask beside) const;
  int64_t ProductsPs(AtomMask set) const;      // of the epilogue roots in the set
  AtomMask FollowersOf(AtomMask roots) const;  // of any of these epilogue roots, and they
  void CountBytes(const std::vector<Atom>& atoms, const GroupPricer& pricer);
  void CountUncached(const DeviceSpec& device);
  void JoinEqual();  // bytes that count for the same sets, so that a bound adds up few numbers
  void TakeOwn();    // those that count for one atom, whatever else is in the set

  // An atom and its conflicts, all of which make or read one value.
  struct Split {
    AtomMask atom = 0, conflicts = 0;
  };
  // Whether these atoms make or read the value in two kernels.
  static bool IsSplit(const std::vector<Split>& splits, AtomMask set);
  std::vector<Split> SplitsOf(AtomMask atoms) const;
  void FindSplits();

  // Bytes read if a reader is in the set and the producer is not, and once more if they are split.
  struct Read {
    AtomMask producer = 0, readers = 0;
    int64_t bytes = 0;
    bool fresh = false;    // written earlier in this backward
    int64_t uncached = 0;  // of bytes, whatever else the kernel that reads them does
    std::vector<Split> splits;
  };
  // Bytes written if the producer is in the set and, unless it escapes, a reader is not, or they
  // are split.
  struct Write {
    AtomMask producer = 0, readers = 0;
    int64_t bytes = 0;
    bool escapes = false;
    std::vector<Split> splits;
  };
  std::vector<AtomMask> predecessors_, neighbours_, ancestors_, descendants_, conflicts_;
  std::vector<Read> reads_;      // but those of one atom from outside the region
  std::vector<Write> writes_;    // but those that escape
  std::vector<MovedBytes> own_;  // by atom: the others
  // Of an epilogue root.
  struct Product {
    AtomMask atom = 0;
    AtomMask followers = 0;  // it, and atoms that are computed point by point like the product
    std::vector<AtomMask> readers;  // for each op that reads it: the atoms that hold this op
  };
  void FindProducts(const std::vector<Atom>& atoms);
  void FindConflicts(const std::vector<Atom>& atoms);

  const GroupPricer& pricer_;
  std::vector<Product> products_;
  AtomMask epilogue_roots_ = 0;
  std::vector<int64_t> product_ps_;  // by atom; 0: no epilogue root
};

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_SEARCH_REGION_MASKS_H_
