// Why the groups of a region are as they are: for pairs of ops at the borders of groups, the best
// plan with them together against the best with them apart, both from the same search; and the
// schedules that a limit refused.
#ifndef RETROGRAD_FUSION_DECISIONS_H_
#define RETROGRAD_FUSION_DECISIONS_H_

#include <vector>

#include "fusion/region_search.h"

namespace retrograd {

struct DecisionOptions {
  int max_borders = 6;    // pairs a region that are re-solved
  int max_exact_atoms = 20;
};

std::vector<Decision> ExplainRegion(const std::vector<Atom>& atoms, const Partition& chosen,
                                    RegionSearch& search, const GroupPricer& pricer,
                                    const DecisionOptions& options = {});

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_DECISIONS_H_
