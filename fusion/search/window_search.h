// Improves a partition of more atoms than the exact search can take, a window at a time.
//
// The parts stand in a valid order, so the atoms of consecutive parts form a convex set: whatever
// plan the exact search finds for them alone fits between the parts before and after.
#ifndef RETROGRAD_FUSION_SEARCH_WINDOW_SEARCH_H_
#define RETROGRAD_FUSION_SEARCH_WINDOW_SEARCH_H_

#include "fusion/search/exact_search.h"
#include "fusion/search/partition.h"

namespace retrograd {

struct WindowOptions {
  int atoms = 16;  // of a window at most
  int rounds = 3;  // over all windows, until none gains
  SearchLimits limits{.max_downsets = 4'000, .max_steps = 200'000, .max_prices = 2'000};
};

// Never costs more than `start`.
Partition ImproveByWindows(const std::vector<Atom>& atoms, PriceBook& book, Partition start,
                           const WindowOptions& options);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_SEARCH_WINDOW_SEARCH_H_
