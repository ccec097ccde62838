// Cheap producers computed again by each kernel that reads them, instead of stored and loaded.
#ifndef RETROGRAD_FUSION_SEARCH_RECOMPUTE_H_
#define RETROGRAD_FUSION_SEARCH_RECOMPUTE_H_

#include <optional>
#include <vector>

#include "fusion/search/partition.h"

namespace retrograd {

// Producers of a region that are tried at most.
inline constexpr size_t kMostRecomputed = 4;

// Pointwise atoms whose readers in other kernels would rather read what the atom reads, by bytes:
// those that save most in the plan given, then those that would if every atom were a kernel of its
// own (a plan may keep together what is better separated and recomputed). Ascending.
std::vector<int> RecomputeCandidates(const std::vector<Atom>& atoms, const Partition& plan,
                                     const GroupPricer& pricer);

// The one atom that reads the atom's result, each element once, if nothing else does, in the region
// or outside. To recompute the atom there is to merge both, which leaves nothing between them that
// may be stored; it wins something only where the reader is recomputed, too.
std::optional<int> OnlyReader(const std::vector<Atom>& atoms, int producer,
                              const GroupPricer& pricer);

// The atoms with those of `producers` (ascending) merged into each of their readers. A producer
// that something outside the region reads stays an atom too.
std::vector<Atom> Recomputed(const std::vector<Atom>& atoms, absl::Span<const int> producers,
                             const GroupPricer& pricer);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_SEARCH_RECOMPUTE_H_
