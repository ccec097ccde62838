// Small backward graphs at real sizes on which compilers are known to have fused too much or too
// little (docs/fusion-cases.md). For planning alone: nothing is executed at these sizes.
#ifndef RETROGRAD_TESTS_SUPPORT_PLANS_FUSION_CASES_H_
#define RETROGRAD_TESTS_SUPPORT_PLANS_FUSION_CASES_H_

#include <cstdint>

#include "graph/ir/backward_graph.h"

namespace retrograd {

// A matrix of activations, [rows, columns].
struct Extent {
  int64_t rows = 0, columns = 0;
};

// What the column sums beside a LayerNorm's backward add up.
enum class SiblingOf {
  kNormInput,    // dy, which the norm's backward reads; there is one such sum
  kNormResult,   // dx · t_k: the gradients of scales that multiply what the norm's backward makes
  kOtherTensor,  // dz_k · rstd: of what the norm's backward reads, only rstd [rows, 1]
};

// LayerNorm's dx with `sums` column sums around it. Outputs "dx", "sum0", "sum1", ...
BackwardGraph LayerNormWithSums(Extent extent, SiblingOf sibling, int sums);

// The backward of an RMSNorm without weight, added to the residual gradient, and the gradients of
// `sums` per-channel scales: dscale_k is the column sum of dx · t_k. Reads dy, x, the residual
// gradient and t_k, all bf16. Outputs "dx", "dscale0", ...
BackwardGraph RmsNormWithScaleSums(Extent extent, int sums);

// An RMSNorm's dx and dw in bf16. Outputs "dx", "dw".
enum class NormOperands {
  kInputs,    // x and dy come from before the backward
  kMadeHere,  // matmuls of this backward make them: if they are small, a cache holds them
};
BackwardGraph RmsNormBackward(Extent extent, NormOperands operands = NormOperands::kInputs);

// The backward of two RMSNorms. Outputs "dw0", "dw1" and "dx0", "dx1"; of a shared x the sum, "dx".
enum class NormsShare {
  kWeight,  // one weight, used at two places
  kInput,   // one x with two weights: the norms of a block whose branches are parallel
};
BackwardGraph TwoRmsNorms(Extent extent, NormsShare share);

// A mask that `ops` integer ops make of a seed [batch, 1, width] selects from dy [batch, length,
// width]: dropout whose mask is broadcast along the sequence. Output "dx".
BackwardGraph BroadcastMask(int64_t batch, int64_t length, int64_t width, int ops);

// `ops` times erf on a scale [columns], which multiplies dy [rows, columns] in bf16. Output "dx".
BackwardGraph BroadcastScale(Extent extent, int ops);

// t = cast(x) to fp32, then `ops` times erf, summed over the first axis ("sum0") and over the
// second ("sum1") of [outer, middle, inner]: no kernel folds two sets of axes.
BackwardGraph TwoReadersOfOne(int64_t outer, int64_t middle, int64_t inner, int ops);

// For each branch t_k = x_k · s_k in bf16, the operand of a matmul dy_kᵀ · t_k that makes the
// weight gradient "dw<k>". dy_k is narrow, so that the t_k are most of the memory. All t_k come
// first.
enum class BranchesRead {
  kOneTensor,  // x_k = x: one kernel may make all t_k of one read, and then keeps all of them alive
  kTheirOwn,   // nothing shared
};
BackwardGraph ScaledBranches(Extent extent, int branches, BranchesRead read);

// Two gradients x · s_0 and x · s_1 of one fp32 tensor. Outputs "d0", "d1".
BackwardGraph TwoScalingsOfOne(Extent extent);

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_PLANS_FUSION_CASES_H_
