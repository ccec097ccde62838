// The best partition of a region's atoms into kernels that are runs of their order, where a region
// is too large to be searched exactly: n atoms have n (n + 1) / 2 runs, however they are connected.
#ifndef RETROGRAD_FUSION_SEARCH_INTERVAL_SEARCH_H_
#define RETROGRAD_FUSION_SEARCH_INTERVAL_SEARCH_H_

#include <vector>

#include "fusion/search/exact_search.h"

namespace retrograd {

// The runs of the cheapest such partition, if it costs less than `below`; empty otherwise. Behind
// kernels of `max_work` (GroupPrice::work) no more are priced.
std::vector<AtomMask> SearchIntervals(ExactSearch& search, int64_t below, int64_t max_work);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_SEARCH_INTERVAL_SEARCH_H_
