// The best partition of a small region by brute force, for tests of the search.
#ifndef RETROGRAD_TESTS_SUPPORT_SEARCH_BRUTE_FORCE_H_
#define RETROGRAD_TESTS_SUPPORT_SEARCH_BRUTE_FORCE_H_

#include <functional>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "fusion/search/exact_search.h"

namespace retrograd {

// Whether the atoms of a set hang together by edges or shared tensors.
bool Connected(const RegionMasks& masks, AtomMask set);

// The least cost over all sequences of legal groups; nullopt if there is none. Brute force: every
// set of atoms that can come next is tried after every set that can be done, without a bound.
class BruteForce {
 public:
  BruteForce(ExactSearch& prices, const GroupPricer& pricer,
             std::function<bool(AtomMask)> allowed = {})
      : prices_(prices), pricer_(pricer), allowed_(std::move(allowed)) {}

  std::optional<int64_t> LeastCost() { return LeastCostAfter(0); }
  // Of the atoms that are left when others, which need none of them, are done.
  std::optional<int64_t> LeastCostAfter(AtomMask done);

 private:
  // Every choice of atoms from `atom` on that can be computed together with the set after `done`;
  // atoms stand in topological order.
  void Extend(int atom, AtomMask done, AtomMask set);
  void Try(AtomMask done, AtomMask set);
  std::optional<int64_t> CostOf(AtomMask set);

  ExactSearch& prices_;
  const GroupPricer& pricer_;
  const std::function<bool(AtomMask)> allowed_;
  std::vector<std::optional<int64_t>> best_;  // by what is done
  absl::flat_hash_map<AtomMask, std::optional<int64_t>> costs_;
};

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_SEARCH_BRUTE_FORCE_H_
