// Launches shared by kernels that do not depend on each other. Most kernels of a small batch last
// less than their launch; the block number tells a shared launch which kernel it is in.
//
// Stands after the search, because partners come from anywhere in the graph, and before groups are
// ordered. What share a launch afterwards: kernels of one template and as many threads a block,
// without the finalize launch of a split, none of which fills the chip. Those of several launches
// share each of them: the first ones are one launch, and so are the second ones. No path leads from
// one to another, and the groups still have a valid order.
#ifndef RETROGRAD_FUSION_HORIZONTAL_HORIZONTAL_H_
#define RETROGRAD_FUSION_HORIZONTAL_HORIZONTAL_H_

#include <vector>

#include "fusion/plan/plan.h"
#include "fusion/pricing/group_pricer.h"

namespace retrograd {

struct SharedLaunches {
  std::vector<Group> groups;        // in no particular order
  std::vector<Decision> decisions;  // a merged launch each, and the most telling refusals
  int64_t saved = 0;                // launches
  int64_t won_ps = 0;
};
SharedLaunches ShareLaunches(std::vector<Group> groups, const GroupPricer& pricer);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_HORIZONTAL_HORIZONTAL_H_
