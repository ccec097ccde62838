// What a matmul and the ops of its epilogue cost in one kernel.
#ifndef RETROGRAD_FUSION_PRICING_EPILOGUE_PRICE_H_
#define RETROGRAD_FUSION_PRICING_EPILOGUE_PRICE_H_

#include "absl/status/statusor.h"
#include "fusion/pricing/group_pricer.h"

namespace retrograd {

// Price of a group that contains `call`'s matmul (fusion/calls/epilogue_candidates.h) beside the
// ops of its epilogue, or of the matmul alone. Infeasible with limit "epilogue" if no
// implementation takes it.
GroupPrice PriceWithEpilogue(const GroupPricer& pricer, const GroupOps& group);

// The group itself, under the schedule that PriceWithEpilogue chose for its epilogue.
absl::StatusOr<Group> MakeWithEpilogue(const GroupPricer& pricer, const GroupOps& group,
                                       const Schedule& schedule);

// The least that the call's matmul takes in a kernel of any implementation and tile, or alone.
int64_t LeastProductPs(const Group& product, const DeviceSpec& device);

// A lower bound of what groups cost that contain these products (LeastProductPs: `products_ps` in
// all) and whose other ops take at least `rest_ps`, with a launch of its own: whichever of them are
// epilogues.
int64_t LeastWithEpiloguePs(int64_t products_ps, int64_t rest_ps, const DeviceSpec& device);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_PRICING_EPILOGUE_PRICE_H_
