// A legal partition drawn by a seed: what tests run to see that every plan computes the same.
#ifndef RETROGRAD_FUSION_SEARCH_RANDOM_PARTITION_H_
#define RETROGRAD_FUSION_SEARCH_RANDOM_PARTITION_H_

#include "fusion/search/partition.h"

namespace retrograd {

Partition RandomPartition(const std::vector<Atom>& atoms, const GroupPricer& pricer, uint64_t seed);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_SEARCH_RANDOM_PARTITION_H_
