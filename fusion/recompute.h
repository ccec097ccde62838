// Cheap producers computed again by each kernel that reads them, instead of stored and loaded.
#ifndef RETROGRAD_FUSION_RECOMPUTE_H_
#define RETROGRAD_FUSION_RECOMPUTE_H_

#include <vector>

#include "fusion/partition.h"

namespace retrograd {

// Producers tried at most: every subset of them is solved.
inline constexpr int kMostRecomputed = 3;

// Pointwise atoms whose values cross kernels in the plan and whose readers would rather read what
// the atom reads, by bytes; those that save most, ascending. Atoms of `keep` are left out.
std::vector<int> RecomputeCandidates(const std::vector<Atom>& atoms, const Partition& plan,
                                     const GroupPricer& pricer, absl::Span<const int> keep);

// The atoms with those of `producers` (ascending) merged into each of their readers. A producer that
// something outside the region reads stays an atom too.
std::vector<Atom> Recomputed(const std::vector<Atom>& atoms, absl::Span<const int> producers,
                             const GroupPricer& pricer);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_RECOMPUTE_H_
