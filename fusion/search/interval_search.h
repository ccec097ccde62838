// The best partition of a region's atoms into kernels that are runs of an order, where a region is
// too large to be searched exactly: n atoms have n (n + 1) / 2 runs, however they are connected.
#ifndef RETROGRAD_FUSION_SEARCH_INTERVAL_SEARCH_H_
#define RETROGRAD_FUSION_SEARCH_INTERVAL_SEARCH_H_

#include <vector>

#include "fusion/search/exact_search.h"

namespace retrograd {

// The runs of the cheapest such partition; empty if there is none. `order`: all atoms, each behind
// those that it reads. Behind kernels of `max_work` (GroupPrice::work) no more are priced.
std::vector<AtomMask> SearchIntervals(ExactSearch& search, absl::Span<const int> order,
                                      int64_t max_work);

// The atoms by the longest path of readers behind them, so that each stands close to its readers.
std::vector<int> LatestOrder(const RegionMasks& masks);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_SEARCH_INTERVAL_SEARCH_H_
