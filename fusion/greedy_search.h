// A good partition of any number of atoms, quickly: neighbouring groups merged while it pays. The
// exact search uses its cost as a bound, the window search improves it.
#ifndef RETROGRAD_FUSION_GREEDY_SEARCH_H_
#define RETROGRAD_FUSION_GREEDY_SEARCH_H_

#include "fusion/partition.h"

namespace retrograd {

Partition MergeGreedily(const std::vector<Atom>& atoms, const GroupPricer& pricer,
                        int64_t max_prices);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_GREEDY_SEARCH_H_
