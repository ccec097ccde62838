// What a multiplying kernel can make of its product before storing it, and what that costs.
//
// The product's element stays in the registers of the thread that has summed it, so the epilogue is
// a pointwise kernel over the product's elements: each point reads its own element of the product,
// reads other tensors where an affine index says, and stores.
#ifndef RETROGRAD_FUSION_MATMUL_EPILOGUE_H_
#define RETROGRAD_FUSION_MATMUL_EPILOGUE_H_

#include "absl/status/statusor.h"
#include "fusion/group_pricer.h"

namespace retrograd {

// Whether the implementation multiplies so: dtypes, a plain product, and of 16-bit elements one
// that is made of tiles (product_tiles.h).
bool TakesProduct(const MatMulEpilogue& row, const MatMulCall& call);

// Whether the op could be part of the epilogue of a product of this type: pointwise, at its points.
bool MayFollow(const BackwardGraph& graph, NodeId id, const TensorType& product);

// Why the kernel is no epilogue of the product under the implementation; empty if it is one.
std::string WhyNoEpilogue(const KernelIr& epilogue, ValueId product, const MatMulEpilogue& row);

// Price of a group that contains `call`'s matmul (anchors.h) beside the ops of its epilogue, or of
// the matmul alone. Infeasible with limit "epilogue" if no implementation takes it.
GroupPrice PriceAnchored(const GroupPricer& pricer, const GroupOps& group);

// The group itself, under the schedule that PriceAnchored chose for its epilogue.
absl::StatusOr<Group> MakeAnchored(const GroupPricer& pricer, const GroupOps& group,
                                   const Schedule& schedule);

// A lower bound of what groups cost that contain these products (each alone `products_ps` in all)
// and whose other ops take at least `rest_ps`, with a launch of its own: whichever of them are
// epilogues.
int64_t LeastAnchoredPs(int64_t products_ps, int64_t rest_ps, const DeviceSpec& device);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_MATMUL_EPILOGUE_H_
