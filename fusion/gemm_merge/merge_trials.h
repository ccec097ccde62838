// Which kinds of merged matmuls a plan keeps. The prices of the matmuls alone do not tell: a merged
// one changes how what it reads and makes lies in memory, and so what the kernels around it cost.
// So whole plans are compared, with a kind and without; equal layers are one kind.
#ifndef RETROGRAD_FUSION_GEMM_MERGE_MERGE_TRIALS_H_
#define RETROGRAD_FUSION_GEMM_MERGE_MERGE_TRIALS_H_

#include "absl/functional/function_ref.h"
#include "fusion/gemm_merge/merge_matmuls.h"

namespace retrograd {

// The price of the whole plan of a lowered graph. If it is beyond `enough_ps`, a lower bound that
// is so will do.
struct PlanPrice {
  int64_t ps = 0;
  bool exact = true;
};
using PricePlan =
    absl::FunctionRef<absl::StatusOr<PlanPrice>(const LegalGraph& graph, int64_t enough_ps)>;

struct TriedMerges {
  MergedMatMuls merged;
  bool all = true;  // every kind is kept, as in the graph that `price` was asked for first
};

// Kept are the kinds without which the plan would take longer. The first graph that is priced has
// all of them; there is none if there is nothing to merge.
absl::StatusOr<TriedMerges> TryMerges(const LegalGraph& lowered, const DeviceSpec& device,
                                      const MergeOptions& options, PricePlan price);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_GEMM_MERGE_MERGE_TRIALS_H_
