// A region of at most 64 atoms as bit masks, for the search to compute on.
#ifndef RETROGRAD_FUSION_SEARCH_ATOMS_REGION_MASKS_H_
#define RETROGRAD_FUSION_SEARCH_ATOMS_REGION_MASKS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "fusion/pricing/group_pricer.h"
#include "fusion/search/atoms/atom_mask.h"
#include "fusion/search/atoms/atoms.h"
#include "fusion/search/atoms/region_bytes.h"

namespace retrograd {

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
  // Whether the set holds such a pair.
  bool Conflict(AtomMask set) const;

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
  MovedBytes LeastBytes(AtomMask set) const { return bytes_->Least(set, set); }
  // The least that one kernel of these atoms takes, and that any number of kernels take together.
  int64_t LeastPs(AtomMask set) const;
  int64_t LeastPsOfAll(AtomMask set) const;

 private:
  int64_t ProductsPs(AtomMask set) const;      // of the epilogue roots in the set
  AtomMask FollowersOf(AtomMask roots) const;  // of any of these epilogue roots, which count, too
  std::vector<AtomMask> predecessors_, neighbours_, ancestors_, descendants_, conflicts_;
  // Of an epilogue root.
  struct Product {
    AtomMask atom = 0;
    AtomMask followers = 0;  // it, and atoms that are computed point by point like the product
    std::vector<AtomMask> readers;  // for each op that reads it: the atoms that hold this op
  };
  void FindProducts(const std::vector<Atom>& atoms);
  void FindConflicts(const std::vector<Atom>& atoms);

  const GroupPricer& pricer_;
  std::optional<RegionBytes> bytes_;
  std::vector<Product> products_;
  AtomMask epilogue_roots_ = 0;
  std::vector<int> conflicting_;     // one atom of each pair that conflicts
  std::vector<int64_t> product_ps_;  // by atom; 0: no epilogue root
};

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_SEARCH_ATOMS_REGION_MASKS_H_
