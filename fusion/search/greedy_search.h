// A good partition of any number of atoms, quickly: neighbouring groups merged while it pays. The
// exact search uses its cost as a bound.
#ifndef RETROGRAD_FUSION_SEARCH_GREEDY_SEARCH_H_
#define RETROGRAD_FUSION_SEARCH_GREEDY_SEARCH_H_

#include <cstdint>
#include <vector>

#include "fusion/search/partition.h"

namespace retrograd {

enum class CombineWhere : uint8_t {
  kItPays,
  kPossible,  // whatever it costs: the dearest merge is made last
};

Partition MergeGreedily(const std::vector<Atom>& atoms, const GroupPricer& pricer,
                        int64_t max_prices, CombineWhere where = CombineWhere::kItPays);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_SEARCH_GREEDY_SEARCH_H_
