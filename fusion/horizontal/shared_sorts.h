// Launches shared by sorts of index lists: the gradients of a model with many tables of embeddings
// have one each, which lasts for little more than its launches.
//
// Sorts share launches that are of one kind (fusion/ops/sort_indices/sort_price.h) and stand
// equally deep, which is the most sorts on a path to them: so none depends on another, and the
// groups still have a valid order, since a path between two of such launches leads to a greater
// depth. None waits for another's indices longer than it lasts itself.
//
// Apart, sorts run on side streams, beside the readers of those before them. So they share launches
// where these take less than the sorts last longer, all together, than all of their first readers
// but the last one, or less than the longest sort.
#ifndef RETROGRAD_FUSION_HORIZONTAL_SHARED_SORTS_H_
#define RETROGRAD_FUSION_HORIZONTAL_SHARED_SORTS_H_

#include <vector>

#include "fusion/horizontal/horizontal.h"
#include "fusion/pricing/group_pricer.h"

namespace retrograd {

SharedLaunches ShareSorts(std::vector<Group> groups, const GroupPricer& pricer);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_HORIZONTAL_SHARED_SORTS_H_
