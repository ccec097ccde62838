// The best partition of at most 64 atoms into kernels, and the proof that it is.
//
// A state is the set of atoms already computed; a step adds one group whose atoms need nothing
// else. So every group is convex and the groups have no cycle. States and steps are taken in the
// order of a lower bound of what a plan through them costs (A*): a step is first entered with the
// least that its bytes can take and priced only when no other could still be cheaper. The first
// complete plan that comes out is the cheapest of those whose groups are connected: each atom of a
// group reads or makes what another one of it does. An unconnected group saves little but a launch;
// searches that start from a partition may find one.
#ifndef RETROGRAD_FUSION_SEARCH_EXACT_SEARCH_H_
#define RETROGRAD_FUSION_SEARCH_EXACT_SEARCH_H_

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "fusion/pricing/price_book.h"
#include "fusion/search/atoms/may_share_kernel.h"
#include "fusion/search/atoms/region_masks.h"
#include "fusion/search/partition.h"
#include "graph/base/word_table.h"

namespace retrograd {

// Counted, never timed: a plan is the same on every machine.
struct SearchLimits {
  int64_t max_downsets = 20'000;       // states entered
  int64_t max_steps = 20'000;          // groups looked at
  int64_t max_steps_of_state = 4'000;  // of them, as the next step from one state
  int64_t max_work = 20'000;           // GroupPrice::work of the kernels priced
  int64_t max_ops = kShortOps;         // of a kernel of several atoms
};

class ExactSearch {
 public:
  static constexpr int64_t kNoBound = std::numeric_limits<int64_t>::max() / 4;

  // At most kMaxMaskedAtoms atoms.
  ExactSearch(const std::vector<Atom>& atoms, PriceBook& book, const SearchLimits& limits);

  // The cheapest plan that costs less than `below`, obeys the constraints and has in no kernel all
  // atoms of one of the sets `separated`. No parts: there is none (exact) or the limits were met
  // (not exact).
  Partition Solve(absl::Span<const Constraint> constraints = {}, int64_t below = kNoBound,
                  absl::Span<const AtomMask> separated = {});

  // T of a set of atoms.
  const GroupPrice& PriceOf(AtomMask set);
  // What the search minimises, of a set that is one kernel; kNoBound: it is none.
  int64_t CostOf(AtomMask set);
  // The least that CostOf may be, found without building the kernel.
  int64_t LeastCost(AtomMask set) const;
  // The price of the two atoms with whatever must stand between them: if it is infeasible, why no
  // plan has them together.
  const GroupPrice& SmallestTogether(int a, int b) {
    return PriceOf(masks_.Closure(Bit(a) | Bit(b)));
  }

  const RegionMasks& masks() const { return masks_; }
  // GroupPrice::work of all kernels priced so far.
  int64_t work() const { return work_; }
  // A partition into these kernels, in a valid order; no parts: there is none.
  Partition PartitionOf(std::vector<AtomMask> sets);

 private:
  class Run;
  std::vector<int> AtomsOf(AtomMask set) const;
  // The price of kernels that are not looked at.
  const GroupPrice& TooLarge(int64_t ops);
  // False: no kernel computes the set, which is found out without building one.
  bool MayShareKernel(AtomMask set);

  const std::vector<Atom>& atoms_;
  PriceBook& book_;
  const GroupPricer& pricer_;
  SearchLimits limits_;
  RegionMasks masks_;
  AtomMask calls_ = 0;  // atoms with a library call, whose kernels are priced by other rules
  WordTable<const GroupPrice*> prices_;      // in the book; nullptr: of no kernel
  std::map<int64_t, GroupPrice> too_large_;  // by the number of ops
  std::optional<RegionLinks> links_;         // once asked for
  int64_t work_ = 0;
};

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_SEARCH_EXACT_SEARCH_H_
